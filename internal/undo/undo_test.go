package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/undo"
)

const tree = `
CREATE TABLE projects (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text);
CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint, title text, upper_title text GENERATED ALWAYS AS (upper(title)) STORED);
CREATE INDEX ON issues (project_id);
CREATE TABLE notes (id bigint PRIMARY KEY, issue_id bigint, body text);
CREATE INDEX ON notes (issue_id);
CREATE TABLE pins (id bigint PRIMARY KEY, project_id int);
CREATE INDEX ON pins (project_id);
CREATE TABLE states (id bigint PRIMARY KEY, project_id bigint, state smallint NOT NULL DEFAULT 1);
CREATE INDEX ON states (project_id);
INSERT INTO projects (name) SELECT 'project ' || i FROM generate_series(1, 5) AS i;
INSERT INTO issues SELECT i, i % 5 + 1, 'issue ' || i FROM generate_series(1, 50) AS i;
INSERT INTO notes SELECT i, i % 50 + 1, 'note ' || i FROM generate_series(1, 200) AS i;
INSERT INTO pins SELECT i, i % 5 + 1 FROM generate_series(1, 20) AS i;
INSERT INTO states SELECT i, i % 5 + 1 FROM generate_series(1, 20) AS i;`

const treeDefinitions = `
issues: [{table: projects, column: project_id, on_delete: async_delete}]
notes: [{table: issues, column: issue_id, on_delete: async_delete}]
pins: [{table: projects, column: project_id, on_delete: async_nullify}]
states: [{table: projects, column: project_id, on_delete: update_column_to, target_column: state, target_value: 4}]
`

var treeTables = []string{"projects", "issues", "notes", "pins", "states"}

// If a worker cleaned up after two deletions in the same batches, a restore of one of
// them restores only its own rows.
func TestDeletionIsRestoredWithChildren(t *testing.T) {
	t.Parallel()
	other := setup(t, tree, treeDefinitions, "projects", "issues")
	other.delete(t, "projects WHERE id = 3")
	want := other.all(treeTables...)

	c := setup(t, tree, treeDefinitions, "projects", "issues")
	c.Exec("DELETE FROM projects WHERE id = 3")
	c.Exec("DELETE FROM projects WHERE id IN (1, 2)")
	wrong := c.last(t)
	require.Equal(t, []string{"1", "2"}, wrong.Keys)
	require.True(t, wrong.Waiting)
	c.drain(t, 0)
	report := c.restore(t, wrong.ID)
	require.Empty(t, report.Left)
	require.False(t, report.Triggers)
	require.Equal(t, "restored", report.Unit.State)
	require.Equal(t, want, c.all(treeTables...))
	c.drain(t, 0)
	require.Equal(t, want, c.all(treeTables...), "no tombstone causes another cleanup")
	again := c.restore(t, wrong.ID)
	require.Zero(t, again.Restored)
	require.Equal(t, want, c.all(treeTables...))
}

// If rows cannot be restored, the report names them with a reason, and all other rows are
// restored.
func TestRowsThatCannotBeRestoredAreReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string
		// left holds the table, key and reason of each row that is not restored. restored
		// is the number of restored rows.
		left     [][3]string
		restored int64
	}{
		"key of a child taken": {
			"INSERT INTO books VALUES (1, 2, NULL, 'other')",
			[][3]string{{"public.books", "1", "its primary key is taken"}},
			4,
		},
		"parent inserted by hand": {
			"INSERT INTO authors VALUES (1)",
			[][3]string{{"public.authors", "1", "its primary key is taken"}},
			4,
		},
		"parent refused": {
			"ALTER TABLE authors ADD CHECK (id <> 1)",
			[][3]string{
				{"public.authors", "1", `new row for relation "authors" violates check constraint "authors_id_check"`},
				{"public.books", "1", "its parent row in public.authors does not exist"},
				{"public.books", "2", "its parent row in public.authors does not exist"},
				{"public.books", "3", "its parent row in public.authors does not exist"},
				{"public.films", "1", "its parent row in public.authors does not exist"},
			},
			0,
		},
		"native parent deleted": {
			"DELETE FROM shelves WHERE id = 2",
			[][3]string{{"public.books", "2", "foreign key books_shelf_id_fkey has no parent row in public.shelves"}},
			4,
		},
		"value set since": {
			"UPDATE films SET author_id = 2",
			[][3]string{{"public.films", "1", "the row was deleted or changed since"}},
			4,
		},
		"column added":     {"ALTER TABLE books ADD added int DEFAULT 7", nil, 5},
		"column dropped":   {"ALTER TABLE books DROP title", nil, 5},
		"column renamed":   {"ALTER TABLE books RENAME title TO name", nil, 5},
		"type changed":     {"ALTER TABLE books ALTER id TYPE int", nil, 5},
		"generated column": {"ALTER TABLE books ADD shout text GENERATED ALWAYS AS (upper(title)) STORED", nil, 5},
		"table renamed":    {"ALTER TABLE books RENAME TO volumes", nil, 5},
		"schema renamed":   {"CREATE SCHEMA apart; ALTER TABLE books SET SCHEMA apart", nil, 5},
		"constraint violated": {
			"ALTER TABLE books ADD CHECK (id <> 3)",
			[][3]string{{
				"public.books", "3",
				`new row for relation "books" violates check constraint "books_id_check"`,
			}},
			4,
		},
		"child table dropped": {
			"DROP TABLE films", [][3]string{{"public.films", "1", "its table does not exist"}}, 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := library(t)
			b.delete(t, "authors WHERE id = 1")
			b.Exec(c.change)
			report := b.restore(t, b.last(t).ID)
			left := [][3]string{}
			for _, l := range report.Left {
				left = append(left, [3]string{l.Table, l.Key, l.Reason})
			}
			require.ElementsMatch(t, append([][3]string{}, c.left...), left)
			require.EqualValues(t, len(c.left), report.LeftRows)
			require.Equal(t, c.restored, report.Restored)
		})
	}
}

func library(t *testing.T) *bundle {
	return setup(t, `
CREATE TABLE authors (id bigint PRIMARY KEY);
CREATE TABLE shelves (id bigint PRIMARY KEY);
CREATE TABLE books (id bigint PRIMARY KEY, author_id bigint, shelf_id bigint REFERENCES shelves, title text);
CREATE TABLE films (id bigint PRIMARY KEY, author_id bigint);
INSERT INTO authors VALUES (1), (2);
INSERT INTO shelves VALUES (1), (2);
INSERT INTO books VALUES (1, 1, 1, 'a'), (2, 1, 2, 'b'), (3, 1, NULL, 'c'), (4, 2, 1, 'd');
INSERT INTO films VALUES (1, 1), (2, 2);`, `
books: [{table: authors, column: author_id, on_delete: async_delete}]
films: [{table: authors, column: author_id, on_delete: async_nullify}]
`, "authors")
}

// Forget deletes all saved values of a deletion. Other deletions can still be restored.
func TestForgetLeavesOtherDeletions(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec("DELETE FROM authors WHERE id = 1")
	b.delete(t, "authors WHERE id = 2")
	units := pgtest.Must(b.engine.List(t.Context(), 10))(t)
	require.Len(t, units, 2)
	require.EqualValues(t, 5, pgtest.Must(b.engine.Forget(t.Context(), units[1].ID))(t))
	require.Empty(t, b.Rows("SELECT FROM sexton.undo WHERE c::text ~ '[abc]'"))
	_, err := b.engine.Show(t.Context(), units[1].ID)
	require.ErrorIs(t, err, undo.ErrUnknown)
	require.Empty(t, b.restore(t, units[0].ID).Left)
	require.Equal(t, [][]string{{"4", "2", "d"}}, b.Rows("SELECT id::text, author_id::text, title FROM books"))
	require.Equal(t, [][]string{{"1", "NULL"}, {"2", "2"}},
		b.Rows("SELECT id::text, coalesce(author_id::text, 'NULL') FROM films ORDER BY id"))
}

// Values of excluded columns are not stored. A row that is too large makes the deletion
// incomplete.
func TestSomeRowsAndColumnsAreNotKept(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.exclude, b.maxRow = []string{"books.title"}, 100
	b.Exec("ALTER TABLE books ADD large text; ALTER TABLE books ALTER large SET STORAGE EXTERNAL; UPDATE books SET large = repeat('x', 1000) WHERE id = 2")
	b.delete(t, "authors WHERE id = 1")
	unit := b.last(t)
	require.Equal(t, "incomplete", unit.State)
	report := b.restore(t, unit.ID)
	require.EqualValues(t, 4, report.Restored)
	require.Equal(t, "partly_restored", report.Unit.State)
	require.Equal(t, [][]string{{"1", "NULL"}, {"3", "NULL"}, {"4", "d"}},
		b.Rows("SELECT id::text, coalesce(title, 'NULL') FROM books ORDER BY id"))
}

// A worker whose configuration has no undo yet deletes children without saving them. The
// deletion is incomplete.
func TestWorkerWithoutUndoMakesDeletionIncomplete(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec("DELETE FROM authors WHERE id = 2")
	complete := b.last(t).ID
	b.drain(t, 0)
	b.off = true
	b.delete(t, "authors WHERE id = 1")
	b.off = false
	unit := b.last(t)
	require.Equal(t, "incomplete", unit.State)
	require.EqualValues(t, 1, unit.Tables[0].LeftOut)
	require.Equal(t, "complete", pgtest.Must(b.engine.Show(t.Context(), complete))(t).State)
	require.Equal(t, "partly_restored", b.restore(t, unit.ID).Unit.State)
	require.Equal(t, "restored", b.restore(t, complete).Unit.State)
}

// A worker without undo deletes some of a parent's children. A worker with undo deletes
// the rest and removes the tombstone. The deletion is incomplete.
func TestWorkerWithoutUndoBeginsDeletion(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec("INSERT INTO books SELECT i, 1, NULL, 'more' FROM generate_series(11, 40) AS i")
	b.Exec("DELETE FROM authors WHERE id = 1")
	b.off = true
	b.drain(t, 20)
	require.EqualValues(t, 1, b.Pending(t))
	require.Equal(t, [][]string{{"13"}}, b.Rows("SELECT count(*) FROM books WHERE author_id = 1"))
	b.off = false
	b.drain(t, 0)
	require.Zero(t, b.Pending(t))
	unit := b.last(t)
	require.Equal(t, "incomplete", unit.State)
	require.Equal(t, "partly_restored", b.restore(t, unit.ID).Unit.State)
}

// If a session sets only sexton.run, as batches of other jobs do, the rows that it
// deletes and their children are not saved.
func TestBatchesOfOtherJobsKeepNoRows(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec("BEGIN; SET LOCAL sexton.run = '5'; DELETE FROM authors WHERE id = 1; COMMIT")
	b.drain(t, 0)
	require.Empty(t, b.Rows("SELECT FROM sexton.undo"))
	require.Equal(t, [][]string{{"4"}}, b.Rows("SELECT id::text FROM books"))
}

// A restore with firing triggers restores the rows, and the server checks the foreign
// keys.
func TestRestoreWithTriggers(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec(`CREATE TABLE fired (id bigint);
CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO fired VALUES (NEW.id); RETURN NEW; END';
CREATE TRIGGER fire AFTER INSERT ON books FOR EACH ROW EXECUTE FUNCTION fire()`)
	b.delete(t, "authors WHERE id = 1")
	b.Exec("DELETE FROM shelves WHERE id = 2")
	b.engine.FireTriggers = true
	report := b.restore(t, b.last(t).ID)
	require.True(t, report.Triggers)
	require.Len(t, report.Left, 1)
	require.Contains(t, report.Left[0].Reason, "violates foreign key constraint")
	require.Equal(t, [][]string{{"1"}, {"3"}}, b.Rows("SELECT id::text FROM fired ORDER BY id"))
}
