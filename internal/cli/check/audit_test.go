package check_test

import (
	"os/user"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

// createOrphans deletes three projects without writing tombstones. It also deletes two
// projects with tombstones, whose issues are not orphans.
func createOrphans(s *clitest.Site) {
	s.Tb.Helper()
	s.Exec(`
		ALTER TABLE projects DISABLE TRIGGER sexton_track;
		DELETE FROM projects WHERE id <= 3;
		ALTER TABLE projects ENABLE ALWAYS TRIGGER sexton_track;
		DELETE FROM projects WHERE id IN (4, 5);`)
}

func TestAudit(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	require.Regexp(t, `^DATABASE +CHILD +COLUMN +PARENT +KEYS +ORPHANED +ROWS +REMARKS
main +issues +project_id +projects +10 +0 +0 +-
0 rows of 0 orphaned keys
$`, s.OK("audit"))
	createOrphans(s)
	before := s.Snapshot()

	r := s.Run("audit")
	require.Equal(t, 5, r.Code)
	require.Empty(t, r.Stderr)
	require.Regexp(t, `\nmain +issues +project_id +projects +10 +3 +30 +such as 1, 2, 3\n30 rows of 3 orphaned keys\n$`,
		r.Stdout)
	found := map[string]any{
		"database": "main", "definition": "issues[0]", "child": "issues", "column": "project_id", "parent": "projects",
		"checked_keys": 10.0, "orphaned_keys": 3.0, "orphaned_rows": 30.0, "rows_capped": false,
		"samples":        []any{"1", "2", "3"},
		"unchecked_keys": 0.0, "repaired_keys": 0.0,
	}
	want := map[string]any{
		"orphaned_keys": 3.0, "orphaned_rows": 30.0, "repaired_keys": 0.0,
		"definitions": []any{found},
	}
	require.Equal(t, want, s.JSON(5, "audit"))
	require.Equal(t, want, s.JSON(5, "audit", "--table", "issues", "--database", "main"))
	require.Equal(t, before, s.Snapshot(), "an audit changes nothing")

	current := pgtest.Must(user.Current())(t)
	r = s.Run("audit", "--repair")
	require.Zero(t, r.Code, r.Stderr)
	require.Regexp(t, `\n30 rows of 3 orphaned keys, 3 tombstones inserted\n$`, r.Stdout)
	require.Equal(t, []map[string]any{{
		"level": "INFO", "msg": "orphans_repaired", "database": "main", "actor": current.Username,
		"definition": "issues[0]", "parent": "projects", "repaired_keys": 3.0,
	}}, r.LogLines(t))
	repaired := s.Snapshot()
	require.Regexp(t, `\n0 rows of 0 orphaned keys, 0 tombstones inserted\n$`, s.OK("audit", "--repair"))
	require.Equal(t, repaired, s.Snapshot(), "a second repair changes nothing")

	require.EqualValues(t, 50, s.Orphans())
	require.Contains(t, s.OK("job", "run", clitest.Kind), "tombstones 5 processed")
	require.Zero(t, s.Orphans())
	require.EqualValues(t, 50, pgtest.Scalar[int64](t, s.Database, "SELECT count(*) FROM issues"))
	s.OK("audit")
}

// If a table cannot be read, the other definitions are audited. The command fails,
// because the table may contain orphans.
func TestAuditWithAnUnreadableTable(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions+`labels:
  - {table: projects, column: project_id, on_delete: async_delete}
`)
	s.Exec("ALTER TABLE labels ADD project_id bigint; CREATE INDEX ON labels (project_id)")
	createOrphans(s)
	tx := pgtest.Begin(t, s.Pool(), "LOCK TABLE labels")
	s.Environ = append(s.Environ, "SEXTON_JOBS__LOCK_TIMEOUT=100ms")
	r := s.Run("audit")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "failed: labels: SQLSTATE 55P03: canceling statement due to lock timeout")
	require.Contains(t, r.Stdout, "30 rows of 3 orphaned keys\n")
	require.Contains(t, r.Stderr, "sexton: 1 definition could not be audited completely")
}

func TestAuditWrongUsage(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	createOrphans(s)
	before := s.Snapshot()
	for _, test := range []struct {
		want string
		args []string
	}{
		{"no definition has the child table isues", []string{"--table", "isues", "--repair"}},
		{"no definition has the child table other.issues", []string{"--table", "other.issues"}},
		{"--table . is empty", []string{"--table", "."}},
		{`no database "ci" is configured (configured: main)`, []string{"--database", "ci"}},
	} {
		r := s.Run(append([]string{"audit"}, test.args...)...)
		require.Equal(t, 2, r.Code, "%v: %s", test.args, r.Stderr)
		require.Empty(t, r.Stdout, test.args)
		require.Contains(t, r.Stderr, test.want, test.args)
	}
	s.Write("loose_foreign_keys.yml", "issues:\n  - {table: missing, column: project_id, on_delete: async_delete}\n")
	require.Equal(t, 2, s.Run("audit", "--repair").Code)
	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\n")
	require.Contains(t, s.Run("audit").Stderr, "is not enabled; set loose_foreign_keys.enabled: true")
	require.Equal(t, before, s.Snapshot())
}
