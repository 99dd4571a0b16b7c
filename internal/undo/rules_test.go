package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// No statement can keep rows and leave the choice of them to a rule. Such children are
// cleaned up all the same, and what went is counted as left out.
func TestTablesWithRulesAreCleanedUp(t *testing.T) {
	t.Parallel()
	const none = "DO INSTEAD NOTHING"
	pgtest.Each(t, map[string]struct {
		rules, definition, pending string
		books                      [][]string
	}{
		"some rows stay": {
			"CREATE RULE keep AS ON DELETE TO books WHERE old.id = 1 " + none, "async_delete", "1",
			[][]string{{"(1,1)"}},
		},
		"no row stays": {
			"CREATE RULE keep AS ON DELETE TO books WHERE old.id = 99 " + none, "async_delete", "0",
			[][]string{},
		},
		"something else": {
			"CREATE RULE also AS ON DELETE TO books DO ALSO INSERT INTO gone VALUES (old.id)",
			"async_delete", "0",
			[][]string{},
		},
		"rules for updates": {
			"CREATE RULE also AS ON UPDATE TO books DO ALSO INSERT INTO gone VALUES (old.id)",
			"async_nullify", "0",
			[][]string{{"(1,)"}, {"(2,)"}},
		},
	}, func(t *testing.T, name string, c struct {
		rules, definition, pending string
		books                      [][]string
	},
	) {
		for _, limit := range []int{0, 1000} { // the adaptive pace and the other one
			if limit > 0 && name != "some rows stay" && !pgtest.Long {
				continue
			}
			b := setup(t, `
CREATE TABLE authors (id bigint PRIMARY KEY);
CREATE TABLE books (id bigint PRIMARY KEY, author_id bigint);
CREATE TABLE gone (id bigint);
INSERT INTO authors VALUES (1); INSERT INTO books VALUES (1, 1), (2, 1);`, `
books: [{table: authors, column: author_id, on_delete: `+c.definition+`}]
`, "authors")
			b.meanwhile = c.rules
			b.Exec("DELETE FROM authors")
			pgtest.Must(b.run(t, limit))(t)
			require.Equal(t, c.books, b.Rows("SELECT b::text FROM books AS b ORDER BY id"))
			require.Equal(t, c.pending, pgtest.Scalar[string](t, b,
				"SELECT count(*)::text FROM loose_foreign_keys_deleted_records WHERE status = 1"))
			require.Equal(t, "incomplete", b.last(t).State)
			report := b.restore(t, b.last(t).ID)
			require.EqualValues(t, 1, report.Restored, "the parent")
		}
	})
}

// Where rows that cannot be kept are to wait, the fault says why.
func TestTablesWithRulesWaitAsConfigured(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders")
	b.waits = true
	b.Exec("INSERT INTO folders VALUES (1); INSERT INTO files VALUES (1, 1); CREATE RULE keep AS ON DELETE TO files WHERE old.id = 2 DO INSTEAD NOTHING")
	b.Exec("DELETE FROM folders")
	stats := pgtest.Must(b.run(t, 0))(t)
	require.Contains(t, stats.Errors[0].Message, "1 of the rows to be deleted from public.files cannot be kept")
	require.Equal(t, [][]string{{"1"}}, b.Rows("SELECT id FROM files"))
}
