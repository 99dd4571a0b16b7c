package records_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

func TestGroupDeletionIsPlanned(t *testing.T) {
	t.Parallel()
	s := clitest.GroupSite(t)
	s.Exec(`CREATE TABLE audits (id bigint PRIMARY KEY, group_id bigint REFERENCES groups); CREATE INDEX ON audits (group_id);
		INSERT INTO projects (id, group_id, name, path) SELECT n, 11, n, n FROM generate_series(1, 3) AS n`)
	require.Regexp(t, `(?s)^ROWS OF +BECOME +COUNT\n.*\nprojects +deleted +3\n\n6 rows, about 0s at an assumed 2000 rows a second\n$`, s.OK("group", "delete", "--plan", "10"))
	s.Exec("INSERT INTO audits VALUES (7, 11)")
	plan := s.JSON(0, "group", "delete", "--plan", "10", "--by", "3").(map[string]any)
	require.Equal(t, map[string]any{"groups": 2.0, "projects": 3.0, "members": 1.0}, plan["deleted"])
	require.Equal(t, []any{
		"audits: the row with id 7 refers to groups, and foreign key audits_group_id_fkey has no action for it", "user 3 may not remove it",
	}, plan["forbidden"])
	require.Equal(t, [][]string{{"NULL"}}, s.Rows("SELECT DISTINCT marked_for_deletion_on FROM groups"))
	require.Equal(t, "sexton: there is no group 404\n", s.Run("group", "delete", "--plan", "404").Stderr)
	require.Equal(t, 2, s.Run("group", "delete", "--plan", "--now", "10", "--by", "1").Code)

	s.Exec("DELETE FROM audits; INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome, changed, stats)" +
		"VALUES ('group_destroy', 'main', 'h', now() - interval '10 s', now(), 'done', true, '{\"deleted\": {\"notes\": 4}, \"nullified\": {\"a.b\": 1}}')")
	plan = s.JSON(0, "group", "delete", "--plan", "10").(map[string]any)
	require.InDelta(t, 0.5, plan["rows_per_second"], 0.001)
	require.InDelta(t, 12, plan["about_seconds"], 0.01)
	require.Equal(t, true, plan["measured"])
	require.Equal(t, "group 10: is not scheduled for deletion, so there is nothing to cancel\n", s.OK("group", "cancel", "10", "--by", "1"))
}

func TestUserDeletionIsPlanned(t *testing.T) {
	t.Parallel()
	s := ghostSite(t)
	s.Exec(`CREATE TABLE audits (id bigint PRIMARY KEY, user_id bigint REFERENCES users); CREATE INDEX ON audits (user_id);
		INSERT INTO todos (user_id, author_id, target_type, target_id, action) VALUES (1, 2, 'Issue', 1, 1)`)
	plan := s.JSON(0, "user", "delete", "--plan", "1").(map[string]any)
	require.Equal(t, map[string]any{"issues": 1.0}, plan["moved"])
	require.Equal(t, map[string]any{"todos": 1.0}, plan["deleted"])
	require.Empty(t, plan["forbidden"])
	require.Equal(t, map[string]any{"todos": 1.0, "issues": 1.0}, s.JSON(0, "user", "delete", "--plan", "--hard", "1").(map[string]any)["deleted"])
	require.Regexp(t, `(?m)^forbidden: delete user 3: sole owner of the groups group \(id 1\)`, s.OK("user", "delete", "--plan", "3"))
	require.Equal(t, "sexton: there is no user 404\n", s.Run("user", "delete", "--plan", "404", "--by", "1").Stderr)
	s.Exec("INSERT INTO audits VALUES (1, 2)")
	require.Regexp(t, `(?m)^forbidden: audits.user_id: `, s.OK("user", "delete", "--plan", "2"))
	require.Empty(t, s.Rows("SELECT FROM users_ghost_user_migrations"))
	require.Equal(t, [][]string{{"active"}}, s.Rows("SELECT DISTINCT state FROM users"))
}
