package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
	"sexton/internal/undo"
)

// undo_rotate does not delete the marks of restored rows. If a restored row is deleted
// again, a second restore of the first deletion therefore does not restore it.
func TestRotationKeepsRestoredMarks(t *testing.T) {
	t.Parallel()
	b := library(t)
	id := b.delete(t, "authors WHERE id = 1")
	require.EqualValues(t, 5, b.restore(t, id).Restored)
	b.Exec("SELECT sexton.undo_rotate('undo', '72 hours', true)")
	require.Equal(t, "restored", b.last(t).State)
	b.Exec("DELETE FROM authors WHERE id = 1")
	require.Zero(t, b.restore(t, id).Restored, "it was deleted again on purpose")
}

// If a child is a partition of a tracked table, the batch and the trigger of that table
// save each row only once.
func TestRowsOfAPartitionAreKeptOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TABLE authors (id bigint PRIMARY KEY);
CREATE TABLE books (id bigint PRIMARY KEY, author_id bigint, title text) PARTITION BY RANGE (id);
CREATE TABLE books_low (title text, author_id bigint, id bigint NOT NULL);
ALTER TABLE books ATTACH PARTITION books_low FOR VALUES FROM (0) TO (100);
CREATE TABLE pages (id bigint PRIMARY KEY, book_id bigint);
CREATE INDEX ON books (author_id); CREATE INDEX ON pages (book_id);
INSERT INTO authors VALUES (1), (2); INSERT INTO books VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c'); INSERT INTO pages VALUES (1, 1), (2, 3);`, `
books_low: [{table: authors, column: author_id, on_delete: async_delete}]
pages: [{table: books, column: book_id, on_delete: async_delete}]
`, "authors", "books")
	before := b.all("authors", "books", "pages")
	b.delete(t, "authors")
	require.Equal(t, [][]string{{"2", "public.authors"}, {"3", "public.books"}, {"2", "public.pages"}}, b.Rows(
		`SELECT sum(u.rows)::text, l.name FROM sexton.undo AS u JOIN sexton.undo_layouts AS l ON l.id = u.layout GROUP BY l.name ORDER BY l.name`))
	report := b.restore(t, b.last(t).ID)
	require.Empty(t, report.Left)
	require.EqualValues(t, 7, report.Restored)
	require.Equal(t, before, b.all("authors", "books", "pages"))
}

// A second restore fails with ErrBusy while the first one is running, and succeeds after
// it has ended.
func TestSecondRestoreIsRefused(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec("DELETE FROM authors WHERE id = 1")
	first := b.last(t).ID
	b.delete(t, "authors WHERE id = 2")
	other := *b.engine
	other.Leases = &lease.Manager{Jobs: b.Connected, Holder: undo.Holder + "second"}
	second, refused := b.last(t).ID, 0
	b.engine.Reached = func(string) error {
		_, err := other.Restore(t.Context(), second, false)
		require.ErrorIs(t, err, undo.ErrBusy)
		require.ErrorContains(t, err, "is held by undo:first until")
		_, err = other.Forget(t.Context(), second)
		require.ErrorIs(t, err, undo.ErrBusy)
		refused++
		return nil
	}
	require.EqualValues(t, 5, b.restore(t, first).Restored)
	require.Positive(t, refused)
	report := pgtest.Must(other.Restore(t.Context(), second, false))(t)
	require.EqualValues(t, 3, report.Restored)
}

// A crash of the server may roll back the lease, so that a worker gets the same token.
// The restore then fails with ErrLost.
func TestRestoreFailsIfLeaseIsRolledBack(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec("DELETE FROM authors WHERE id = 1")
	b.engine.Reached = func(string) error {
		b.Exec("UPDATE sexton.leases SET holder = 'worker'")
		b.engine.Databases[0].Pool.Reset()
		return nil
	}
	_, err := b.engine.Restore(t.Context(), b.last(t).ID, false)
	require.ErrorIs(t, err, lease.ErrLost)
}

// If one database is a copy of the other, their deletions have the same IDs. Restore and
// Forget fail instead of mixing rows of both.
func TestDeletionsOfCopiedDatabasesAreNotMixed(t *testing.T) {
	t.Parallel()
	b, copied := library(t), library(t)
	b.Exec("DELETE FROM authors WHERE id = 1")
	copied.delete(t, "authors WHERE id = 2")
	id := b.last(t).ID
	copied.Exec("SELECT 1 / (count(*) FILTER (WHERE id = $1))::integer FROM sexton.undo", id)
	ci := copied.Connected
	ci.Name = "ci"
	b.engine.Databases = []database.Database{b.Connected, ci}
	require.Len(t, pgtest.Must(b.engine.List(t.Context(), 10))(t), 2)
	_, err := b.engine.Restore(t.Context(), id, false)
	require.ErrorIs(t, err, undo.ErrTwice)
	_, err = b.engine.Forget(t.Context(), id)
	require.ErrorIs(t, err, undo.ErrTwice)
	require.Equal(t, [][]string{{"0"}}, copied.Rows("SELECT count(*)::text FROM authors WHERE id = 2"))
	b.engine.Databases = b.engine.Databases[:1]
	require.EqualValues(t, 1, b.restore(t, id).Restored)
}

// List does not read the saved rows of batches that several deletions share, and counts
// all of their rows for each deletion. Show, and List for partly restored deletions,
// count only the deletion's own rows.
func TestListCountsSharedRows(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec("DELETE FROM authors WHERE id = 1")
	first := b.last(t)
	require.False(t, first.Shared)
	b.delete(t, "authors WHERE id = 2")
	rows := func(u *undo.Unit) (rows []int64) {
		for _, table := range u.Tables {
			rows = append(rows, table.Rows)
		}
		return rows
	}
	listed := pgtest.Must(b.engine.List(t.Context(), 10))(t)
	require.Len(t, listed, 2)
	for _, one := range listed {
		require.True(t, one.Shared)
		require.Equal(t, []int64{1, 4, 2}, rows(one), "authors, books and films")
		require.Equal(t, "complete", one.State)
	}
	shown := pgtest.Must(b.engine.Show(t.Context(), first.ID))(t)
	require.False(t, shown.Shared)
	require.Equal(t, []int64{1, 3, 1}, rows(shown))
	require.Empty(t, b.restore(t, first.ID).Left)
	listed = pgtest.Must(b.engine.List(t.Context(), 10))(t)
	require.Equal(t, []int64{1, 3, 1}, rows(listed[1]))
	require.Equal(t, "restored", listed[1].State)
}
