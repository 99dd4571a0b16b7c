package records_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

// runDocumentedUndo runs the SQL statements of docs/undo.md and docs/page.md, and the
// commands of docs/undo.md for the given deletion. It returns the output.
func runDocumentedUndo(t *testing.T, s *clitest.TwoDatabases, id string) (output string) {
	document := string(pgtest.Must(os.ReadFile("../../../docs/undo.md"))(t))
	page := string(pgtest.Must(os.ReadFile("../../../docs/page.md"))(t))
	statements := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(document+page, -1)
	require.Len(t, statements, 2)
	for _, block := range statements {
		s.Exec(block[1])
	}
	shown := regexp.MustCompile("(?s)```console\n(.*?)```").FindStringSubmatch(document)[1]
	for line := range strings.Lines(strings.ReplaceAll(shown, "482100000000042", id)) {
		if command, is := strings.CutPrefix(line, "$ sexton "); is {
			output += s.OK(strings.Fields(command)...)
		} else if heading := strings.Fields(line); heading[0] == "ID" {
			require.Equal(t, heading, strings.Fields(output)[:len(heading)])
		}
	}
	return output
}

// Undo restores a deletion with rows in two databases: projects and traces are in main,
// and builds are in ci.
func TestUndoInTwoDatabases(t *testing.T) {
	t.Parallel()
	s := clitest.PlainTwoDatabases(t, "main")
	s.Environ = append(s.Environ, "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__KEEP=72h")
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	s.OK("triggers", "status")
	contents := func() [][][]string {
		return [][][]string{
			s.Rows("SELECT id::text FROM projects ORDER BY id"), s.Rows("SELECT i::text FROM issues AS i ORDER BY 1"),
			s.Rows("SELECT t::text FROM traces AS t ORDER BY 1"),
			s.Ci.Rows("SELECT b::text FROM builds AS b ORDER BY 1"),
		}
	}
	want := contents()
	require.Equal(t, "no deletion is kept\n", s.OK("undo", "list"))
	s.Exec("DELETE FROM projects WHERE id <= 3")
	s.OK("job", "run", clitest.Kind, "--database", "main")
	s.OK("job", "run", clitest.Kind, "--database", "ci")
	require.Equal(t, [][]string{{"30"}}, s.Rows("SELECT count(*)::text FROM traces WHERE build_id IS NULL"))

	listed := s.JSON(0, "undo", "list").(map[string]any)["deletions"].([]any)
	require.Len(t, listed, 1)
	unit := listed[0].(map[string]any)
	id := fmt.Sprintf("%.0f", unit["id"])
	require.Equal(t, []any{"1", "2", "3"}, unit["keys"])
	require.Equal(t, "complete", unit["state"])
	require.Len(t, unit["tables"], 4)
	require.Contains(t, s.OK("undo", "show", id), "public.traces")
	require.NotEqual(t, want, contents())

	s.MakeUnreachable("ci")
	partial := s.JSON(0, "undo", "show", id).(map[string]any)
	require.Equal(t, []any{"ci"}, partial["unreachable"])
	require.Equal(t, []any{"ci"}, s.JSON(0, "undo", "list").(map[string]any)["unreachable"])
	require.Less(t, len(partial["tables"].([]any)), 4)
	require.Contains(t, s.Run("undo", "list").Stderr, "database ci cannot be reached: its kept deletions are left out\n")
	s.RequireRefused(t, 4, [][]string{{"undo", id}}, "database ci cannot be reached")
	s.MakeUnreachable("")

	require.Equal(t, []string{"93 rows would be restored", "93 rows restored"},
		regexp.MustCompile(`93 rows [a-z ]+`).FindAllString(runDocumentedUndo(t, s, id), -1))
	require.Equal(t, want, contents())
	require.Contains(t, s.OK("undo", id), "0 rows restored")
	s.OK("job", "run", clitest.Kind, "--database", "main")
	s.OK("job", "run", clitest.Kind, "--database", "ci")
	require.Equal(t, want, contents())
	s.Environ = append(s.Environ, "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__KEEP=0s")
	require.Contains(t, s.OK("undo", "list"), id, "kept deletions can be listed and forgotten after undo is disabled")
	require.Contains(t, s.OK("undo", "forget", id), "forgotten")
	s.Environ = append(s.Environ, "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__KEEP=72h")
	s.RequireRefused(t, 1, [][]string{{"undo", "show", id}}, "no deletion with this number is kept")
	require.Contains(t, s.OK("status"), "of deleted rows are kept")
	s.OK("migrate", "down", "--force")
}
