package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// Postgres rejects a statement that saves rows of a table with rules. The rows are not
// deleted or changed until the rule is dropped.
func TestCleanUpWaitsForTablesWithRules(t *testing.T) {
	t.Parallel()
	type example struct {
		rule, definition string
		kept, cleaned    [][]string
	}
	pgtest.Each(t, map[string]example{
		"delete": {
			"CREATE RULE r AS ON DELETE TO books WHERE old.id = 1 DO INSTEAD NOTHING", "async_delete",
			[][]string{{"(1,1)"}, {"(2,1)"}},
			[][]string{},
		},
		"update": {
			"CREATE RULE r AS ON UPDATE TO books DO ALSO INSERT INTO gone VALUES (old.id)", "async_nullify",
			[][]string{{"(1,1)"}, {"(2,1)"}},
			[][]string{{"(1,)"}, {"(2,)"}},
		},
	}, func(t *testing.T, _ string, c example) {
		// The limit 0 selects the adaptive pace, which uses other statements than a fixed
		// limit.
		for _, limit := range []int{0, 1000} {
			b := setup(t, `
CREATE TABLE authors (id bigint PRIMARY KEY);
CREATE TABLE books (id bigint PRIMARY KEY, author_id bigint);
CREATE TABLE gone (id bigint);
INSERT INTO authors VALUES (1); INSERT INTO books VALUES (1, 1), (2, 1);`, `
books: [{table: authors, column: author_id, on_delete: `+c.definition+`}]
`, "authors")
			b.beforeRun = c.rule
			b.Exec("DELETE FROM authors")
			stats := pgtest.Must(b.run(t, limit))(t)
			require.Contains(t, stats.Errors[0].Message, "undo cannot keep rows of a table with rules")
			books := "SELECT b::text FROM books AS b ORDER BY id"
			require.Equal(t, c.kept, b.Rows(books))
			require.EqualValues(t, 1, b.Pending(t))

			b.beforeRun = ""
			b.Exec("DROP RULE r ON books; UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
			b.drain(t, limit)
			require.Equal(t, c.cleaned, b.Rows(books))
			report := b.restore(t, b.last(t).ID)
			require.Equal(t, c.kept, b.Rows(books), report)
		}
	})
}
