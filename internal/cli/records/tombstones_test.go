package records_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

// insertFailures inserts three tombstones. Tombstone 1001 has failed once. Tombstone 1002
// has failed three times and is deferred.
func insertFailures(s *clitest.Site) {
	s.Tb.Helper()
	s.Exec(`
		DELETE FROM projects WHERE id <= 3;
		UPDATE loose_foreign_keys_deleted_records SET id = 1000 + primary_key_value;
		UPDATE loose_foreign_keys_deleted_records SET cleanup_attempts = 1, last_error = E'issues: SQLSTATE 23503: used\nelsewhere' WHERE id = 1001;
		UPDATE loose_foreign_keys_deleted_records SET cleanup_attempts = 3, last_error = 'issues: SQLSTATE P0001: never', consume_after = '2099-01-02T03:04:05Z' WHERE id = 1002;`)
}

func TestRevivedTombstones(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("DELETE FROM projects WHERE id <= 2; INSERT INTO projects (id) VALUES (1), (2)")
	require.Contains(t, s.OK("job", "run", clitest.Kind),
		"revived    2 tombstones: the parent rows exist again, so their children are kept\n")
	require.Empty(t, s.Rows("SELECT FROM loose_foreign_keys_deleted_records"))
}

// The statements in docs/operations.md move or delete the tombstones of a table that was
// replaced.
func TestTombstonesOfAReplacedTable(t *testing.T) {
	t.Parallel()
	text := string(pgtest.Must(os.ReadFile("../../../docs/operations.md"))(t))
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(text, -1)
	require.Len(t, blocks, 2)
	move, drop := blocks[0][1], blocks[1][1]
	s := clitest.Installed(t)
	insertFailures(s)
	s.Exec("UPDATE loose_foreign_keys_deleted_records SET fully_qualified_table_name = 'public.old_projects'")
	s.Exec(move)
	s.OK("job", "run", clitest.Kind)
	require.Empty(t, s.Rows("SELECT FROM issues WHERE project_id <= 3"))

	s.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.old_projects', 4), ('public.other', 1)")
	s.Exec(drop)
	require.Equal(t, [][]string{{"public.other"}},
		s.Rows("SELECT fully_qualified_table_name FROM loose_foreign_keys_deleted_records"))
}
