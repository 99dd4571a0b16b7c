package undo_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

const ring = `
CREATE TABLE projects (id bigint PRIMARY KEY, main_issue bigint);
CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint, next_id bigint);
CREATE TABLE notes (id bigint PRIMARY KEY, issue_id bigint);
CREATE INDEX ON issues (project_id); CREATE INDEX ON issues (next_id); CREATE INDEX ON projects (main_issue); CREATE INDEX ON notes (issue_id);
INSERT INTO projects VALUES (1, 11), (2, NULL), (3, 13);
INSERT INTO issues VALUES (11, 1), (12, 1), (13, 3), (14, 2);
INSERT INTO notes VALUES (1, 11), (2, 12), (3, 13);`

const ringDefinitions = `
issues: [{table: projects, column: project_id, on_delete: async_delete}]
notes: [{table: issues, column: issue_id, on_delete: async_delete}]
`

// Rows that refer to each other in a cycle are restored together, and a dry run reports
// the same counts. If one row of a cycle cannot be restored, the rows that refer to it
// are not restored either.
func TestCyclesAreRestored(t *testing.T) {
	t.Parallel()
	chunks := "INSERT INTO issues SELECT i, 1, i % 12000 + 101 FROM generate_series(101, 12100) AS i"
	type example struct {
		tables, more string
		change       string
		// left is the number of rows that are not restored.
		left int64
	}
	pgtest.Each(t, pgtest.Few(t, map[string]example{
		"nullify":        {more: "projects: [{table: issues, column: main_issue, on_delete: async_nullify}]\n"},
		"delete":         {more: "projects: [{table: issues, column: main_issue, on_delete: async_delete}]\n"},
		"native key":     {tables: "ALTER TABLE projects ADD FOREIGN KEY (main_issue) REFERENCES issues ON DELETE SET NULL"},
		"self-reference": {tables: chunks, change: "ALTER TABLE issues ADD FOREIGN KEY (next_id) REFERENCES issues"},
		"one is refused": {
			more:   "projects: [{table: issues, column: main_issue, on_delete: async_nullify}]\n",
			change: "ALTER TABLE issues ADD CHECK (id <> 11)", left: 5,
		},
		"a parent is missing": {
			tables: "CREATE TABLE kinds (id bigint PRIMARY KEY); INSERT INTO kinds VALUES (1); " +
				"ALTER TABLE issues ADD kind bigint REFERENCES kinds; UPDATE issues SET kind = 1 WHERE id = 11",
			more:   "projects: [{table: issues, column: main_issue, on_delete: async_nullify}]\n",
			change: "DELETE FROM kinds", left: 5,
		},
	}, "nullify", "native key", "self-reference", "one is refused"), func(t *testing.T, _ string, c example) {
		b := setup(t, ring+c.tables, ringDefinitions+c.more, "projects", "issues")
		before := b.all("projects", "issues", "notes")
		b.delete(t, "projects WHERE id IN (1, 3)")
		b.Exec("SELECT; " + c.change)
		dry, err := b.engine.Restore(t.Context(), b.last(t).ID, true)
		require.NoError(t, err)
		report := b.restore(t, b.last(t).ID)
		require.Equal(t, c.left, report.LeftRows, "%v", report.Left[:min(5, len(report.Left))])
		if c.left == 0 {
			require.Equal(t, before, b.all("projects", "issues", "notes"))
		}
		require.Equal(t, []int64{report.Restored, report.LeftRows}, []int64{dry.Restored, dry.LeftRows}, "%v",
			dry.Left[:min(5, len(dry.Left))])
	})
}

// With silenced triggers, no row is restored without the parent that a foreign key
// requires. This holds for each kind of table and column.
func TestForeignKeysHoldWithSilencedTriggers(t *testing.T) {
	t.Parallel()
	const books = "books: [{table: authors, column: author_id, on_delete: async_delete}]\n"
	const start = `
CREATE TABLE authors (id bigint PRIMARY KEY); CREATE TABLE shelves (id bigint PRIMARY KEY);
INSERT INTO authors VALUES (1), (2); INSERT INTO shelves VALUES (1), (2), (9);
`
	const plain = start + `CREATE TABLE books (id bigint PRIMARY KEY, author_id bigint, shelf_id bigint DEFAULT 2 REFERENCES shelves);
CREATE INDEX ON books (author_id); INSERT INTO books VALUES (1, 1, 1), (2, 2, NULL);`
	const leaves = start + `CREATE TABLE books (id bigint, author_id bigint, shelf_id bigint%s) PARTITION BY RANGE (id);
CREATE TABLE books_low PARTITION OF books FOR VALUES FROM (0) TO (100);
%s; CREATE INDEX ON books (author_id); INSERT INTO books VALUES (1, 1, 1);`
	for name, c := range map[string]struct{ tables, definitions, exclude, change, violated string }{
		"column added": {
			tables:   plain,
			change:   "ALTER TABLE books ADD shelf2 bigint DEFAULT 9 REFERENCES shelves; UPDATE books SET shelf2 = 1; DELETE FROM shelves WHERE id = 9",
			violated: "SELECT FROM books WHERE shelf2 = 9",
		},
		"column excluded": {
			tables: plain, exclude: "books.shelf_id", change: "DELETE FROM shelves WHERE id = 2",
			violated: "SELECT FROM books WHERE shelf_id = 2",
		},
		"nullified": {
			tables: start + `CREATE TABLE members (author_id bigint, tenant_id bigint, PRIMARY KEY (author_id, tenant_id));
CREATE TABLE films (id bigint PRIMARY KEY, author_id bigint, tenant_id bigint, FOREIGN KEY (author_id, tenant_id) REFERENCES members);
CREATE INDEX ON films (author_id); INSERT INTO members VALUES (1, 7); INSERT INTO films VALUES (1, 1, 7);`,
			definitions: "films: [{table: authors, column: author_id, on_delete: async_nullify}]\n",
			change:      "DELETE FROM members", violated: "SELECT FROM films WHERE author_id = 1",
		},
		"generated": {
			tables: start + `CREATE TABLE books (id bigint PRIMARY KEY, author_id bigint, n bigint, shelf_id bigint GENERATED ALWAYS AS (n + 1) STORED REFERENCES shelves);
CREATE INDEX ON books (author_id); INSERT INTO books VALUES (1, 1, 0);`,
			change: "DELETE FROM shelves WHERE id = 1", violated: "SELECT FROM books WHERE author_id = 1",
		},
		"key of a leaf": {
			tables: fmt.Sprintf(leaves, "", "ALTER TABLE books_low ADD FOREIGN KEY (shelf_id) REFERENCES shelves"),
			change: "DELETE FROM shelves WHERE id = 1", violated: "SELECT FROM books WHERE shelf_id = 1",
		},
		"leaf as a child": {
			tables:      fmt.Sprintf(leaves, " REFERENCES shelves", "SELECT"),
			definitions: "books_low: [{table: authors, column: author_id, on_delete: async_delete}]\n",
			change:      "DELETE FROM shelves WHERE id = 1", violated: "SELECT FROM books WHERE shelf_id = 1",
		},
		"inherited target": {
			tables:   plain,
			change:   "CREATE TABLE old () INHERITS (shelves); DELETE FROM shelves; INSERT INTO old VALUES (1)",
			violated: "SELECT FROM books WHERE shelf_id = 1",
		},
		"match full": {
			tables: start + `CREATE TABLE places (a int, b int, PRIMARY KEY (a, b)); CREATE TABLE books (id bigint PRIMARY KEY, author_id bigint, a int, b int);
CREATE INDEX ON books (author_id); INSERT INTO books VALUES (1, 1, 5, NULL);`,
			change:   "ALTER TABLE books ADD FOREIGN KEY (a, b) REFERENCES places MATCH FULL",
			violated: "SELECT FROM books",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.definitions == "" {
				c.definitions = books
			}
			b := setup(t, c.tables, c.definitions, "authors")
			b.exclude = append(b.exclude, c.exclude)
			b.delete(t, "authors WHERE id = 1")
			b.Exec(c.change)
			dry, err := b.engine.Restore(t.Context(), b.last(t).ID, true)
			require.NoError(t, err)
			report := b.restore(t, b.last(t).ID)
			require.Empty(t, b.Rows(c.violated))
			require.EqualValues(t, 1, report.Restored)
			require.Len(t, report.Left, 1)
			require.Regexp(t, "^foreign key .* has no parent row in public", report.Left[0].Reason)
			require.Equal(t, report.Left, dry.Left)
		})
	}
}

// If a table changes after the restore has begun, the restore reads the definition of the
// table again. It then restores no row that violates an added foreign key, and columns
// that swapped their names keep their values.
func TestTableThatChangesDuringRestoreIsReadAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string
		rows   [][]string
	}{
		"key":  {"ALTER TABLE books ADD FOREIGN KEY (author2) REFERENCES shelves", [][]string{}},
		"swap": {"ALTER TABLE books RENAME author2 TO x; ALTER TABLE books RENAME other TO author2; ALTER TABLE books RENAME x TO other", [][]string{{"88", "77"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, `
CREATE TABLE authors (id bigint PRIMARY KEY); CREATE TABLE shelves (id bigint PRIMARY KEY);
CREATE TABLE books (id bigint PRIMARY KEY, author_id bigint, author2 bigint DEFAULT 77, other bigint DEFAULT 88);
CREATE INDEX ON books (author_id);
INSERT INTO authors VALUES (1); INSERT INTO books VALUES (1, 1);`, "books: [{table: authors, column: author_id, on_delete: async_delete}]\n", "authors")
			b.delete(t, "authors WHERE id = 1")
			begun := 0
			b.engine.Reached = func(point string) error {
				if point == "begun" {
					if begun++; begun == 1 {
						b.Exec(c.change)
					}
				}
				return nil
			}
			b.restore(t, b.last(t).ID)
			require.ElementsMatch(t, c.rows, b.Rows("SELECT author2::text, other::text FROM books"))
		})
	}
}
