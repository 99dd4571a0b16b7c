package app_test

import (
	"os/user"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// forgotten deletes three projects without leaving tombstones, and two that leave some.
func (s *site) forgotten() {
	s.tb.Helper()
	s.Exec(`
		ALTER TABLE projects DISABLE TRIGGER sexton_track;
		DELETE FROM projects WHERE id <= 3;
		ALTER TABLE projects ENABLE ALWAYS TRIGGER sexton_track;
		DELETE FROM projects WHERE id IN (4, 5);`)
}

func TestAudit(t *testing.T) {
	t.Parallel()
	s := installed(t)
	require.Regexp(t, `^DATABASE +CHILD +COLUMN +PARENT +KEYS +ORPHANED +ROWS +REMARKS
main +issues +project_id +projects +10 +0 +0 +-
0 rows of 0 orphaned keys
$`, s.ok("audit"))
	s.forgotten()
	before := s.snapshot()

	r := s.run("audit")
	require.Equal(t, 5, r.code)
	require.Empty(t, r.stderr)
	require.Regexp(t, `\nmain +issues +project_id +projects +10 +3 +30 +such as 1, 2, 3\n30 rows of 3 orphaned keys\n$`, r.stdout)
	found := map[string]any{
		"database": "main", "definition": "issues[0]", "child": "issues", "column": "project_id", "parent": "projects",
		"checked_keys": 10.0, "orphaned_keys": 3.0, "orphaned_rows": 30.0, "rows_capped": false, "samples": []any{"1", "2", "3"},
		"unchecked_keys": 0.0, "repaired_keys": 0.0,
	}
	want := map[string]any{"orphaned_keys": 3.0, "orphaned_rows": 30.0, "repaired_keys": 0.0, "definitions": []any{found}}
	require.Equal(t, want, s.json(5, "audit"))
	require.Equal(t, want, s.json(5, "audit", "--table", "issues", "--database", "main", "--batch", "1"))
	require.Equal(t, before, s.snapshot(), "looking changes nothing")

	current, err := user.Current()
	require.NoError(t, err)
	r = s.run("audit", "--repair")
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `\n30 rows of 3 orphaned keys, 3 tombstones left\n$`, r.stdout)
	require.Equal(t, []map[string]any{{
		"level": "INFO", "msg": "orphans repaired", "database": "main", "actor": current.Username,
		"definition": "issues[0]", "parent": "projects", "repaired_keys": 3.0,
	}}, r.logged(t))
	repaired := s.snapshot()
	require.Regexp(t, `\n0 rows of 0 orphaned keys, 0 tombstones left\n$`, s.ok("audit", "--repair"))
	require.Equal(t, repaired, s.snapshot(), "repairing twice is repairing once")

	require.EqualValues(t, 50, s.orphans())
	require.Contains(t, s.ok("job", "run", kind), "tombstones 5 processed")
	require.Zero(t, s.orphans())
	require.EqualValues(t, 50, pgtest.Scalar[int64](t, s.Database, "SELECT count(*) FROM issues"))
	s.ok("audit")
}

// What cannot be read ends its own definition and no other; the command fails, as it may hide anything.
func TestAuditThatCannotReadATable(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.write("loose_foreign_keys.yml", goodDefinitions+`labels:
  - {table: projects, column: project_id, on_delete: async_delete}
`)
	s.Exec("ALTER TABLE labels ADD project_id bigint; CREATE INDEX ON labels (project_id)")
	s.forgotten()
	tx, err := s.Pool().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE labels")
	require.NoError(t, err)
	s.environ = append(s.environ, "SEXTON_JOBS__LOCK_TIMEOUT=100ms")
	r := s.run("audit")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 1, r.code, r.stderr)
	require.Contains(t, r.stdout, "failed: labels: SQLSTATE 55P03: canceling statement due to lock timeout")
	require.Contains(t, r.stdout, "30 rows of 3 orphaned keys\n")
	require.Contains(t, r.stderr, "sexton: 1 definition could not be audited to the end")
}

func TestAuditWrongUsage(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.forgotten()
	before := s.snapshot()
	for _, test := range []struct {
		want string
		args []string
	}{
		{"--batch 0 must be between 1 and 10000", []string{"--batch", "0"}},
		{"--batch 10001 must be between 1 and 10000", []string{"--batch", "10001"}},
		{"no definition has the child table isues", []string{"--table", "isues", "--repair"}},
		{"no definition has the child table other.issues", []string{"--table", "other.issues"}},
		{"--table . is empty", []string{"--table", "."}},
		{`no database "ci" is configured; there is main`, []string{"--database", "ci"}},
	} {
		r := s.run(append([]string{"audit"}, test.args...)...)
		require.Equal(t, 2, r.code, "%v: %s", test.args, r.stderr)
		require.Empty(t, r.stdout, test.args)
		require.Contains(t, r.stderr, test.want, test.args)
	}
	s.write("loose_foreign_keys.yml", "issues:\n  - {table: missing, column: project_id, on_delete: async_delete}\n")
	require.Equal(t, 2, s.run("audit", "--repair").code)
	s.configure(s.URL, "loose_foreign_keys: {enabled: false}\n")
	require.Contains(t, s.run("audit").stderr, "no job is enabled")
	require.Equal(t, before, s.snapshot())
}
