package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// The 6,000 rows of one DELETE are saved in two sets with one ID. If one of the parents
// is not restored, its tombstone is not deleted.
func TestDeletedParentKeepsTombstone(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec("INSERT INTO authors SELECT i FROM generate_series(3, 6000) AS i")
	b.Exec("INSERT INTO books SELECT i, 2, NULL, 'many' FROM generate_series(10, 12) AS i")
	b.Exec("DELETE FROM authors")
	require.Equal(t, [][]string{{"2", "1"}}, b.Rows("SELECT count(*)::text, count(DISTINCT id)::text FROM sexton.undo"))
	b.Exec("INSERT INTO authors VALUES (2)")
	report := b.restore(t, b.last(t).ID)
	require.EqualValues(t, 5999, report.Restored)
	require.Equal(t, [][]string{{"2"}},
		b.Rows("SELECT primary_key_value::text FROM loose_foreign_keys_deleted_records WHERE status = 1"))
}

// If two deletions share a batch and one is forgotten, the tombstones of the other do not
// lose their origin. Rows that are deleted later are still saved for the other deletion.
func TestForgetLeavesTombstonesOfOtherDeletions(t *testing.T) {
	t.Parallel()
	b := setup(t, tree, treeDefinitions, "projects", "issues")
	b.delete(t, "issues WHERE project_id > 2")
	b.Exec("DELETE FROM projects WHERE id = 1")
	first := b.last(t).ID
	b.Exec("DELETE FROM projects WHERE id = 2")
	second := b.last(t).ID
	b.drain(t, 20)
	waiting := "SELECT count(*) FILTER (WHERE origin IS NULL) > 0, count(origin) > 0 FROM loose_foreign_keys_deleted_records " +
		"WHERE status = 1 AND fully_qualified_table_name = 'public.issues'"
	require.Equal(t, [][]string{{"false", "true"}}, b.Rows("SELECT a::text, b::text FROM ("+waiting+") AS w (a, b)"))
	pgtest.Must(b.engine.Forget(t.Context(), first))(t)
	require.Equal(t, [][]string{{"true", "true"}}, b.Rows("SELECT a::text, b::text FROM ("+waiting+") AS w (a, b)"))
	b.drain(t, 0)
	report := b.restore(t, second)
	require.Empty(t, report.Left)
	require.Equal(t, "restored", report.Unit.State)
	require.Equal(t, [][]string{{"10", "40"}},
		b.Rows("SELECT count(DISTINCT i.id)::text, count(*)::text FROM issues AS i JOIN notes AS n ON n.issue_id = i.id"))
}

// If the table of the deleted rows was renamed and another table has taken its name, the
// rows are restored into the other table.
func TestRowsAreRestoredIntoReplacedTable(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.delete(t, "authors WHERE id = 1")
	b.Exec(`CREATE TABLE newer (title text, id bigint PRIMARY KEY, author_id bigint, shelf_id bigint);
ALTER TABLE books RENAME TO books_old; ALTER TABLE newer RENAME TO books`)
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
	require.Equal(t, [][]string{{"4"}}, b.Rows("SELECT id::text FROM books_old"))
	require.Equal(t, [][]string{{"(a,1,1,1)"}, {"(b,2,1,2)"}, {"(c,3,1,)"}},
		b.Rows("SELECT b::text FROM books AS b ORDER BY id"))
}

// If a restored parent is deleted again, a second restore of the first deletion does not
// restore references to the parent.
func TestValueIsNotRestoredWithoutParent(t *testing.T) {
	t.Parallel()
	b := library(t)
	first := b.delete(t, "authors WHERE id = 1")
	b.Exec("UPDATE films SET author_id = 2 WHERE id = 1")
	require.EqualValues(t, 4, b.restore(t, first).Restored)
	b.delete(t, "authors WHERE id = 1")
	b.Exec("UPDATE films SET author_id = NULL WHERE id = 1")
	again := b.restore(t, first)
	require.Zero(t, again.Restored)
	require.Len(t, again.Left, 1)
	require.Equal(t, "its parent row in public.authors does not exist", again.Left[0].Reason)
	require.Equal(t, [][]string{{"0"}}, b.Rows("SELECT count(*)::text FROM films WHERE author_id = 1"))
}

// If the column by which rows referred to their parents is excluded, the rows of a shared
// batch are not restored, and a note in the report names the column.
func TestExcludedReferenceIsReported(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.exclude = []string{"books.author_id"}
	b.Exec("DELETE FROM authors WHERE id = 1")
	b.delete(t, "authors WHERE id = 2")
	report := b.restore(t, b.last(t).ID)
	require.Contains(t, report.Notes, "rows of public.books may be missing: author_id is excluded, so the rows of this deletion cannot be found")
	require.EqualValues(t, 2, report.Restored)
}

// Tables may have columns with the names that generated statements use.
func TestColumnsMayHaveAnyName(t *testing.T) {
	t.Parallel()
	b := setup(t, `CREATE TABLE folders (id bigint PRIMARY KEY, gone text, old text);
CREATE TABLE files (id bigint PRIMARY KEY, owner_id bigint, key text, sexton_n int, sexton_fits bool,
	child int, gone int, r int, rows int, c text, once int, number int);
CREATE INDEX ON files (owner_id);
CREATE TABLE links (was bigint PRIMARY KEY, owner_id bigint, sexton_at int, k0 int, u int);
CREATE INDEX ON links (owner_id);
CREATE TABLE native (sexton_part bigint PRIMARY KEY, thing_id bigint REFERENCES files ON DELETE CASCADE, sexton_bytes int);
CREATE TABLE pale (id bigint PRIMARY KEY, now bigint REFERENCES files ON DELETE SET NULL, sexton_fits int);
INSERT INTO folders VALUES (1, 'a', 'b'), (2, 'c', 'd');
INSERT INTO files SELECT i, i % 2 + 1, 'k', 7, false, 1, 2, 3, 4, 'c', 5, 6 FROM generate_series(1, 10) AS i;
INSERT INTO links SELECT i, i % 2 + 1, 3, 4, 5 FROM generate_series(1, 10) AS i;
INSERT INTO native SELECT i, i, 9 FROM generate_series(1, 10) AS i;
INSERT INTO pale SELECT i, i, 9 FROM generate_series(1, 10) AS i`, `
files: [{table: folders, column: owner_id, on_delete: async_delete, event: [key, rows]}]
links: [{table: folders, column: owner_id, on_delete: async_nullify}]
`, "folders")
	b.installCascadeTriggers(t)
	tables := []string{"folders", "files", "links", "native", "pale"}
	before := b.all(tables...)
	b.delete(t, "folders")
	require.NotEqual(t, before, b.all(tables...))
	require.Equal(t, [][]string{{`{"key": "k", "rows": 4}`}},
		b.Rows("SELECT DISTINCT payload -> 'rows' -> 0 FROM sexton.events"))
	id := b.last(t).ID
	require.EqualValues(t, 42, pgtest.Must(b.engine.Restore(t.Context(), id, true))(t).Restored)
	require.Empty(t, b.restore(t, id).Left)
	require.Equal(t, before, b.all(tables...))
}

// A deletion is restored only once. If the same row is deleted again, that is a new
// deletion.
func TestARestoredParentMayBeDeletedAgain(t *testing.T) {
	t.Parallel()
	b := library(t)
	want := b.all("authors", "books", "films")
	var units []int64
	for range 3 {
		b.delete(t, "authors WHERE id = 1")
		deleted := b.all("authors", "books", "films")
		units = append(units, b.last(t).ID)
		for _, earlier := range units[:len(units)-1] {
			require.Zero(t, b.restore(t, earlier).Restored)
			require.Equal(t, deleted, b.all("authors", "books", "films"))
		}
		require.Empty(t, b.restore(t, units[len(units)-1]).Left)
		require.Equal(t, want, b.all("authors", "books", "films"))
	}
	b.drain(t, 0)
	require.Equal(t, want, b.all("authors", "books", "films"))
}

// Rows of a detached partition are reported as not restored, and are restored after the
// partition is attached again.
func TestRowsOfDetachedPartitionAreReported(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TABLE authors (id bigint PRIMARY KEY); INSERT INTO authors VALUES (1);
CREATE TABLE books (id bigint, author_id bigint, kind int, PRIMARY KEY (id, kind)) PARTITION BY LIST (kind);
CREATE TABLE books_1 PARTITION OF books FOR VALUES IN (1); CREATE TABLE books_2 PARTITION OF books FOR VALUES IN (2);
CREATE INDEX ON books (author_id); INSERT INTO books SELECT i, 1, i % 2 + 1 FROM generate_series(1, 10) AS i;`,
		"books: [{table: authors, column: author_id, on_delete: async_delete}]", "authors")
	want := b.all("authors", "books")
	b.delete(t, "authors")
	b.Exec("ALTER TABLE books DETACH PARTITION books_2")
	report := b.restore(t, b.last(t).ID)
	require.EqualValues(t, 6, report.Restored)
	require.Len(t, report.Left, 5)
	require.Equal(t, `no partition of relation "books" found for row`, report.Left[0].Reason)
	b.Exec("ALTER TABLE books ATTACH PARTITION books_2 FOR VALUES IN (2)")
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
	require.Equal(t, want, b.all("authors", "books"))
}

// A restore ends even if an application keeps inserting missing parents under their old
// keys. Each row is restored or reported.
func TestApplicationInsertsParentsDuringRestore(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec("INSERT INTO authors SELECT i FROM generate_series(3, 2000) AS i; INSERT INTO books SELECT i, i, NULL, 'many' FROM generate_series(5, 2000) AS i")
	id := b.delete(t, "authors WHERE id > 2")
	conn, stop := pgtest.Connect(t, b.URL), make(chan struct{})
	ended := dbtest.InBackground(func() (int, error) {
		for key := 2000; ; key-- {
			select {
			case <-stop:
				return key, nil
			default:
			}
			if _, err := conn.Exec(t.Context(), "INSERT INTO authors VALUES ($1) ON CONFLICT DO NOTHING",
				max(key, 3)); err != nil {
				return key, err
			}
		}
	})
	report := b.restore(t, id)
	close(stop)
	pgtest.Must(ended())(t)
	require.EqualValues(t, 1998+1996, report.Restored+report.LeftRows)
	for _, left := range report.Left {
		require.Equal(t, "its primary key is taken", left.Reason)
	}
	require.Equal(t, [][]string{{"2000", "2000"}},
		b.Rows("SELECT (SELECT count(*) FROM authors)::text, count(*)::text FROM books AS b JOIN authors AS a ON a.id = b.author_id"))
}
