package undo_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
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

// A value that its type refuses by now keeps its own row out, and no other one.
func TestATypeRefusesRowsOneByOne(t *testing.T) {
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

// What is forgotten of rows that went together with others is in no way of theirs: not where a type takes no NULL, nor where one refuses values.
func TestOwnTypesOfAForgottenDeletion(t *testing.T) {
	t.Parallel()
	for name, ddl := range map[string]string{"no NULL": "SELECT", "enum value renamed": "ALTER TYPE mood RENAME VALUE 'sad' TO 'low'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, ownTypes, ownTypesDefinitions, "authors")
			want := b.Rows("SELECT b, f FROM books AS b JOIN films AS f USING (author_id) WHERE author_id = 2 ORDER BY b.id")
			b.Exec("DELETE FROM authors WHERE id = 1")
			first := b.last(t).ID
			b.delete(t, "authors WHERE id = 2")
			b.Exec(ddl)
			require.EqualValues(t, 4, pgtest.Must(b.engine.Forget(t.Context(), first))(t))
			require.Empty(t, b.restore(t, b.last(t).ID).Left)
			require.Equal(t, want, b.Rows("SELECT b, f FROM books AS b JOIN films AS f USING (author_id) ORDER BY b.id"))
		})
	}
}

// Nor where the type of a value, or of a reference, takes no NULL and casts to text in another form than arrays have it in.
func TestTypesWithoutNULLOfAForgottenDeletion(t *testing.T) {
	t.Parallel()
	for kind, keys := range map[string][2]string{"boolean": {"f", "t"}, "char(3)": {"a", " b"}, "bigint": {"1", "2"}, "text": {"", "NULL"}, "varchar(9)": {"a,b", "{}"}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := setup(t, fmt.Sprintf(`
CREATE DOMAIN own AS %[1]s NOT NULL; CREATE DOMAIN further AS own; CREATE DOMAIN corner AS box NOT NULL; CREATE DOMAIN flag AS boolean NOT NULL;
CREATE TABLE authors (id %[1]s PRIMARY KEY);
CREATE TABLE books (id further PRIMARY KEY, author_id own, corner corner, flag flag);
CREATE TABLE films (id bigint PRIMARY KEY, author_id further, flag flag);
CREATE TABLE pages (id bigint PRIMARY KEY, book_id own);
INSERT INTO authors VALUES ('%[2]s'), ('%[3]s');
INSERT INTO books SELECT id, id, '(2,2),(1,1)', false FROM authors; INSERT INTO films SELECT row_number() OVER (), id, false FROM authors;
INSERT INTO pages SELECT row_number() OVER (), id FROM authors`, kind, keys[0], keys[1]), `
books: [{table: authors, column: author_id, on_delete: async_delete}]
films: [{table: authors, column: author_id, on_delete: update_column_to, target_column: flag, target_value: true}]
pages: [{table: books, column: book_id, on_delete: async_delete}]`, "authors", "books")
			rows := func(where string) [][]string {
				return b.Rows("SELECT b, f, p FROM books AS b JOIN films AS f USING (author_id) JOIN pages AS p ON p.book_id = b.id" + where)
			}
			want := rows(" WHERE f.id = 2")
			b.Exec("DELETE FROM authors WHERE id = $1", keys[0])
			first := b.last(t).ID
			b.Exec("DELETE FROM authors WHERE id = $1", keys[1])
			b.drain(t, 0)
			require.EqualValues(t, 4, pgtest.Must(b.engine.Forget(t.Context(), first))(t))
			dry := pgtest.Must(b.engine.Restore(t.Context(), b.last(t).ID, true))(t)
			require.Empty(t, dry.Left)
			require.EqualValues(t, 4, dry.Restored)
			require.Empty(t, b.restore(t, b.last(t).ID).Left)
			require.Equal(t, want, rows(""))
			b.drain(t, 0)
			require.Equal(t, want, rows(""))
		})
	}
}
