package records_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

func TestTombstonesMove(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	failing(s)
	s.Exec("UPDATE loose_foreign_keys_deleted_records SET fully_qualified_table_name = 'public.old_projects'")
	before := s.Snapshot()
	s.Refused(t, 2, [][]string{{"tombstones", "move", "--table", "old_projects"}}, "sexton: sexton tombstones move needs --table and --to")
	s.Refused(t, 2, [][]string{{"tombstones", "move", "--table", "old_projects", "--to", "nowhere", "--yes"}},
		"sexton: --to nowhere: database main has no table public.nowhere")
	r := s.Run("tombstones", "move", "--table", "old_projects", "--to", "projects")
	require.Equal(t, 2, r.Code)
	require.Contains(t, r.Stderr, "main: 3 waiting tombstones of public.old_projects\n")
	require.Contains(t, r.Stderr, "not confirmed, nothing was changed")
	require.Equal(t, before, s.Snapshot())

	want := map[string]any{"database": "main", "table": "public.old_projects", "to": "public.projects", "changed": 3.0, "busy": 0.0}
	require.Equal(t, []any{want}, s.JSON(0, "tombstones", "move", "--table", "old_projects", "--to", "projects", "--yes"))
	require.Equal(t, [][]string{{"move", "tombstones of old_projects to projects"}}, s.Rows("SELECT action, target FROM sexton.audit"))
	require.Equal(t, [][]string{{"public.projects", "0", "t", "t"}}, s.Rows(`SELECT DISTINCT fully_qualified_table_name, cleanup_attempts,
		consume_after <= now(), parent_oid = 'projects'::regclass FROM loose_foreign_keys_deleted_records`))
	require.Equal(t, "no tombstone waits\n", s.OK("tombstones", "move", "--table", "old_projects", "--to", "projects", "--yes"))
	s.OK("job", "run", clitest.Kind)
	require.Empty(t, s.Rows("SELECT FROM issues WHERE project_id <= 3"))
}

func TestTombstonesDrop(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	failing(s)
	s.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.other', 1)")
	s.Refused(t, 2, [][]string{{"tombstones", "drop", "--yes"}}, "sexton: sexton tombstones drop needs --table")

	tx, err := s.Pool().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM loose_foreign_keys_deleted_records WHERE id = 1002 FOR UPDATE")
	require.NoError(t, err)
	require.Equal(t, "main: 2 tombstones of public.projects dropped, 1 busy: a worker has them in hand\n", s.OK("tombstones", "drop", "--table", "projects", "--yes"))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "main: 1 tombstone of public.projects dropped\n", s.OK("tombstones", "drop", "--table", "projects", "--yes"))
	require.Equal(t, [][]string{{"public.other"}}, s.Rows("SELECT fully_qualified_table_name FROM loose_foreign_keys_deleted_records"))
}
