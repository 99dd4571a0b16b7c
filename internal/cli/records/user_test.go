package records_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

const ghostKind = "users_migrate_records_to_ghost_user_in_batches"

// ghostSite returns the reference application with the job that deletes users. Users 1
// and 2 have written an issue each, user 3 is the only owner of a group, and user 4 is a
// bot.
func ghostSite(t *testing.T) *clitest.Site {
	return clitest.Prepared(t, exampleapp.Schema()+`
		INSERT INTO users (id, username, email, name, user_type) VALUES
			(1, 'ada', 'ada@example.com', 'Ada', 0), (2, 'ben', 'ben@example.com', 'Ben', 0), (3, 'carla', 'carla@example.com', 'Carla', 0), (4, 'bot', 'bot@example.com', 'Bot', 11);
		INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
		INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (3, 'Namespace', 1, 50);
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
		INSERT INTO issues (id, project_id, title, author_id) VALUES (1, 1, 'by Ada', 1), (2, 1, 'by Ben', 2);`,
		"loose_foreign_keys: {enabled: false}\nghost_users: {enabled: true}\n")
}

func TestUserDelete(t *testing.T) {
	t.Parallel()
	s := ghostSite(t)
	require.Equal(t, "user 1: blocked, and queued for deletion\n", s.OK("user", "delete", "1"))
	require.Equal(t, map[string]any{"user_id": 1.0, "queued": false}, s.JSON(0, "user", "delete", "1"),
		"the user is already queued")
	require.Equal(t, [][]string{{"blocked"}}, s.Rows("SELECT state FROM users WHERE id = 1"))
	status := s.OK("status")
	require.Regexp(t, `users_ghost_user_migrations +main +1 `, status)
	require.Regexp(t, `USER +MOVED +DELETED +NULLIFIED`, status)
	require.Contains(t, status, "a worker: none is running")
	s.Exec("UPDATE users_ghost_user_migrations SET consume_after = 'infinity'")
	require.Regexp(t, `\n1 +0 +0 +0 +- +0 +infinity +-\n`, s.OK("status"), "a user deferred without end is shown with infinity")
	s.Exec("INSERT INTO sexton.clients (client_id, host, pid) VALUES ('host:1:abc', 'host', 1)")
	s.Exec("UPDATE users_ghost_user_migrations SET consume_after = '2100-01-02 03:04:05Z', last_error = 'todos: used'")
	require.Contains(t, s.OK("status"), "1 user deferred until 2100-01-02T03:04:05Z, after: todos: used")
	s.Exec("UPDATE users_ghost_user_migrations SET consume_after = '-infinity', last_error = NULL")
	require.Regexp(t, `\n1 +0 +0 +0 +- +0 +- +-\n`, s.OK("status"))

	report := s.JSON(0, "job", "run", ghostKind).(map[string]any)
	require.Equal(t, "done", report["outcome"])
	require.EqualValues(t, 1, report["stats"].(map[string]any)["users_processed"])
	require.Equal(t, [][]string{{"by Ada", "ghost"}, {"by Ben", "ben"}},
		s.Rows("SELECT title, username FROM issues JOIN users ON users.id = author_id ORDER BY issues.id"))
	require.Equal(t, [][]string{{"user_destroyed", "1"}},
		s.Rows("SELECT kind, payload ->> 'user_id' FROM sexton.events"))
	require.Equal(t, "done", s.JSON(0, "job", "run", ghostKind).(map[string]any)["outcome"])
	require.Len(t, s.Rows("SELECT FROM users"), 4, "the second run changes nothing; the ghost is the fourth")

	s.Exec("INSERT INTO users_ghost_user_migrations (user_id) SELECT id FROM users WHERE user_type = 5")
	s.OK("job", "run", ghostKind)
	require.Regexp(t, ghostKind+` +1 user deferred until [^ ]+Z, after: the ghost user cannot be deleted\n(.*\n)+`+
		ghostKind+` +the ghost user cannot be deleted \(1 time\)\n`, s.OK("status"), "the error names no table")

	require.Equal(t, "user 2: blocked, and queued for deletion\n",
		s.OK("user", "delete", "2", "--hard", "--by", "3"))
	s.OK("job", "run", ghostKind)
	require.Equal(t, [][]string{{"by Ada"}}, s.Rows("SELECT title FROM issues"), "--hard deletes the issues of the author")
}

// doctor reports a user whose deletion has failed three times, with the table and the
// constraint.
func TestDoctorReportsFailingUsers(t *testing.T) {
	t.Parallel()
	s := ghostSite(t)
	s.Exec("INSERT INTO users (id, username, email, name, user_type) VALUES (5, 'ghost', 'ghost@example.com', 'Ghost User', 5)")
	s.Exec("ALTER TABLE issues ADD CONSTRAINT signed CHECK (author_id <> 5)")
	s.OK("user", "delete", "1")
	type finding = struct{ Check, Object, Message string }
	findings := func() (found []finding) {
		var report struct{ Findings []finding }
		require.NoError(t, json.Unmarshal([]byte(s.Run("doctor", "--json").Stdout), &report))
		for _, f := range report.Findings {
			if f.Check == "failing_users" {
				found = append(found, f)
			}
		}
		return found
	}
	for range 3 {
		require.Empty(t, findings(), "fewer than three failures are no finding")
		s.OK("job", "run", ghostKind)
		s.Exec("UPDATE users_ghost_user_migrations SET consume_after = now()")
	}
	require.Equal(t, []finding{{
		"failing_users", "user 1",
		`its deletion has failed 3 times: issues: SQLSTATE 23514: new row for relation "issues" violates check constraint "signed"`,
	}}, findings())
	s.Exec("INSERT INTO users (id, username, email, name) SELECT id, id, id || '@example.com', id FROM generate_series(101, 111) AS id")
	s.Exec("INSERT INTO users_ghost_user_migrations (user_id, attempts, last_error) SELECT id, 4, 'kept' FROM users WHERE id > 100")
	found := findings()
	require.Len(t, found, 11)
	require.Equal(t, "the deletion of 2 more users fails, too", found[10].Message)
}

// A list of columns that does not match the tables is reported with its position, before
// anything runs.
func TestInvalidGhostLists(t *testing.T) {
	t.Parallel()
	s := ghostSite(t)
	s.Configure(s.URL,
		"loose_foreign_keys: {enabled: false}\nghost_users:\n  enabled: true\n  move:\n    - {table: isues, columns: [author_id]}\n")
	r := s.Run("job", "run", ghostKind)
	require.Equal(t, 2, r.Code)
	require.Contains(t, r.Stderr, s.Path("sexton.yaml")+":7:15: ghost_users.move[0].table: ")
	require.Contains(t, r.Stderr, "did you mean issues?")
	r = s.Run("doctor", "--json")
	require.Equal(t, 5, r.Code)
	var report struct {
		Findings []struct{ Check, Object string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &report))
	require.Contains(t, report.Findings, struct{ Check, Object string }{"ghost_users", "ghost_users.move[0].table"})
	require.Empty(t, s.Rows("SELECT FROM sexton.runs"))
}

func TestGhostUsersWithoutTables(t *testing.T) {
	t.Parallel()
	s := clitest.NewSite(t, pgtest.New(t))
	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\nghost_users: {enabled: true}\n")
	s.RequireError(2, "users", "migrate", "up")
	s.RequireError(2, "there is no table users in schema public", "config", "check", "--connect")
}

func TestMain(m *testing.M) { clitest.Main(m) }
