package records_test

import (
	"os"
	"os/user"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/listen"
	"sexton/internal/pgtest"
)

// failing leaves three tombstones, of which two have failed: 1001 once, and 1002 so often that it is put off.
func failing(s *clitest.Site) {
	s.Tb.Helper()
	s.Exec(`
		DELETE FROM projects WHERE id <= 3;
		UPDATE loose_foreign_keys_deleted_records SET id = 1000 + primary_key_value;
		UPDATE loose_foreign_keys_deleted_records SET cleanup_attempts = 1, last_error = E'issues: SQLSTATE 23503: used\nelsewhere' WHERE id = 1001;
		UPDATE loose_foreign_keys_deleted_records SET cleanup_attempts = 3, last_error = 'issues: SQLSTATE P0001: never', consume_after = '2099-01-02T03:04:05Z' WHERE id = 1002;`)
}

func TestTombstonesList(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	require.Equal(t, "no tombstone waits\n", s.OK("tombstones", "list"))
	require.Equal(t, "no failed tombstone waits\n", s.OK("tombstones", "list", "--failed"))
	require.Equal(t, map[string]any{"tombstones": []any{}, "more": 0.0, "more_capped": false}, s.JSON(0, "tombstones", "list"))
	failing(s)
	before := s.Snapshot()

	require.Regexp(t, `^ID +DATABASE +TABLE +KEY +AGE +ATTEMPTS +DUE +LAST ERROR
1001 +main +public\.projects +1 +\d+s +1 +now +issues: SQLSTATE 23503: used; elsewhere
1002 +main +public\.projects +2 +\d+s +3 +2099-01-02T03:04:05Z +issues: SQLSTATE P0001: never
1003 +main +public\.projects +3 +\d+s +0 +now +-
$`, s.OK("tombstones", "list"))
	require.Regexp(t, `\n1001 .*\nand 2 tombstones more\n$`, s.OK("tombstones", "list", "--limit", "1"))
	require.Regexp(t, `\n1001 .*\nand 1 failed tombstone more\n$`, s.OK("tombstones", "list", "--limit", "1", "--failed"))
	require.NotContains(t, s.OK("tombstones", "list", "--failed", "--table", "projects"), "1003")
	require.Equal(t, "no tombstone waits\n", s.OK("tombstones", "list", "--table", "other.projects", "--database", "main"))

	document := s.JSON(0, "tombstones", "list", "--limit", "2", "--table", "public.projects").(map[string]any)
	require.EqualValues(t, 1, document["more"])
	listed := document["tombstones"].([]any)
	require.Len(t, listed, 2)
	second := listed[1].(map[string]any)
	delete(second, "age_seconds")
	require.Equal(t, map[string]any{
		"database": "main", "id": 1002.0, "table": "public.projects", "key": "2", "attempts": 3.0, "failed": true, "deferred": true,
		"last_error": "issues: SQLSTATE P0001: never", "consume_after": "2099-01-02T03:04:05Z",
	}, second)
	require.Equal(t, before, s.Snapshot())
}

func TestTombstonesRetry(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	failing(s)
	current := pgtest.Must(user.Current())(t)
	conn := pgtest.Acquire(t, s.Pool())
	pgtest.Exec(t, conn, "LISTEN "+listen.Channel)

	r := s.Run("tombstones", "retry", "--id", "1002,7", "--id", "1003")
	require.Equal(t, 1, r.Code)
	require.Equal(t, "main: 1 failed tombstone due now, 1 due already\n", r.Stdout)
	log, complaint, _ := strings.Cut(r.Stderr, "\n")
	require.Equal(t, []map[string]any{{
		"level": "INFO", "msg": "tombstones retried", "database": "main", "actor": current.Username, "table": "", "ids": []any{1002.0, 7.0, 1003.0},
		"retried": 1.0, "busy": 0.0,
	}}, clitest.Result{Stderr: log}.Logged(t))
	require.Equal(t, "sexton: no waiting tombstone has the id 7\n", complaint)
	notification := pgtest.Must(conn.Conn().WaitForNotification(t.Context()))(t)
	require.Equal(t, clitest.Kind, notification.Payload, "what the trigger would send")

	require.Equal(t, []any{map[string]any{"database": "main", "retried": 1.0, "due": 0.0, "busy": 0.0, "unknown": []any{}}},
		s.JSON(0, "tombstones", "retry", "--table", "projects"))
	require.Equal(t, "main: 0 failed tombstones due now\n", s.OK("tombstones", "retry", "--all"))
	require.Equal(t, [][]string{{"tombstones 1002, 7, 1003"}, {"tombstones of parent projects"}, {"all tombstones"}},
		s.Rows("SELECT target FROM sexton.audit WHERE action = 'retry' ORDER BY id"))
	require.Equal(t, [][]string{{"0", "f"}}, s.Rows("SELECT DISTINCT cleanup_attempts, consume_after > now() FROM loose_foreign_keys_deleted_records"))
	require.Contains(t, s.OK("job", "run", clitest.Kind), "tombstones 3 processed")
	require.Contains(t, s.Run("tombstones", "retry", "--id", "1002,1001").Stderr, "no waiting tombstone has the id 1001, 1002")
}

func TestTombstonesWrongUsage(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	failing(s)
	before := s.Snapshot()
	for _, test := range []struct {
		want string
		args []string
	}{
		{"sexton tombstones needs a command", nil},
		{"--limit 0 must be at least 1", []string{"list", "--limit", "0"}},
		{`--table a."b lacks its closing double quote`, []string{"list", "--table", `a."b`}},
		{`no database "ci" is configured; there is main`, []string{"list", "--database", "ci"}},
		{"sexton tombstones retry needs one of --id, --table and --all", []string{"retry"}},
		{"sexton tombstones retry needs one of --id, --table and --all", []string{"retry", "--all", "--id", "1001"}},
		{"sexton tombstones retry needs one of --id, --table and --all", []string{"retry", "--table", "projects", "--id", "1001"}},
		{`invalid argument "x" for "--id" flag`, []string{"retry", "--id", "x"}},
		{"contains a NUL character", []string{"retry", "--table", "a\x00"}},
		{`no database "ci" is configured; there is main`, []string{"retry", "--all", "--database", "ci"}},
	} {
		r := s.Run(append([]string{"tombstones"}, test.args...)...)
		require.Equal(t, 2, r.Code, "%v: %s", test.args, r.Stderr)
		require.Empty(t, r.Stdout, test.args)
		require.Contains(t, r.Stderr, test.want, test.args)
	}
	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\n")
	require.Contains(t, s.Run("tombstones", "list").Stderr, "is not enabled; set loose_foreign_keys.enabled: true")
	require.Equal(t, before, s.Snapshot())
}

func TestTombstonesBeforeTheSchema(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	for _, args := range [][]string{{"tombstones", "list"}, {"tombstones", "retry", "--all"}, {"audit"}} {
		require.Equal(t, 3, s.Run(args...).Code, args)
	}
}

func TestRevivedTombstones(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("DELETE FROM projects WHERE id <= 2; INSERT INTO projects (id) VALUES (1), (2)")
	require.Contains(t, s.OK("job", "run", clitest.Kind), "revived    2 tombstones: the deleted rows live, so their children are kept\n")
	require.Equal(t, "no tombstone waits\n", s.OK("tombstones", "list"))
}

// The statements are those of docs/operations.md.
func TestTombstonesOfAReplacedTable(t *testing.T) {
	t.Parallel()
	text := string(pgtest.Must(os.ReadFile("../../../docs/operations.md"))(t))
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(text, -1)
	require.Len(t, blocks, 2)
	move, drop := blocks[0][1], blocks[1][1]
	s := clitest.Installed(t)
	failing(s)
	s.Exec("UPDATE loose_foreign_keys_deleted_records SET fully_qualified_table_name = 'public.old_projects'")
	s.Exec(move)
	s.OK("job", "run", clitest.Kind)
	require.Empty(t, s.Rows("SELECT FROM issues WHERE project_id <= 3"))

	s.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.old_projects', 4), ('public.other', 1)")
	s.Exec(drop)
	require.Equal(t, [][]string{{"public.other"}}, s.Rows("SELECT fully_qualified_table_name FROM loose_foreign_keys_deleted_records"))
}
