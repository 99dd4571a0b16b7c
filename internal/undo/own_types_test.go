package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const ownTypes = `
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE DOMAIN word AS text NOT NULL;
CREATE DOMAIN yes AS boolean;
CREATE DOMAIN small AS int;
CREATE TABLE authors (id bigint PRIMARY KEY);
CREATE TABLE books (id bigint PRIMARY KEY, author_id bigint, mood mood, title word, yes yes, small small);
CREATE TABLE films (id bigint PRIMARY KEY, author_id bigint, yes yes, title word);
INSERT INTO authors VALUES (1), (2);
INSERT INTO books VALUES (1, 1, 'sad', 'a"b', true, 1), (2, 1, 'glad', '', NULL, 2), (3, 2, 'glad', 'NULL', false, 3), (4, 2, 'glad', '{,}', true, 4);
INSERT INTO films VALUES (1, 1, false, 'x'), (2, 2, false, '');`

const ownTypesDefinitions = `
books: [{table: authors, column: author_id, on_delete: async_delete}]
films: [{table: authors, column: author_id, on_delete: update_column_to, target_column: yes, target_value: true}]
`

// If a type now refuses a saved value, only the row with that value is not restored.
func TestTypeRefusesSingleRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ddl, stays string }{
		"enum value renamed":   {"ALTER TYPE mood RENAME VALUE 'sad' TO 'low'", "1"},
		"constraint of domain": {"ALTER DOMAIN small ADD CHECK (VALUE <> 2)", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, ownTypes, ownTypesDefinitions, "authors")
			want := b.all("authors", "films")
			b.delete(t, "authors WHERE id = 1")
			b.Exec(c.ddl)
			report := b.restore(t, b.last(t).ID)
			require.Len(t, report.Left, 1)
			require.Equal(t, c.stays, report.Left[0].Key)
			require.Len(t, b.Rows("SELECT FROM books"), 3)
			require.Equal(t, want, b.all("authors", "films"))
		})
	}
}
