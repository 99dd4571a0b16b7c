package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

const folders = `
CREATE TABLE folders (id bigint PRIMARY KEY, body text);
CREATE TABLE files (id bigint PRIMARY KEY, folder_id bigint, above bigint REFERENCES files ON DELETE CASCADE);
CREATE INDEX ON files (folder_id);
CREATE INDEX ON files (above);`

const foldersDefinitions = "files: [{table: folders, column: folder_id, on_delete: async_delete}]\n"

// Values that compress well have the limits of others.
func TestPartsAreCutByWhatTheirValuesTakeUncompressed(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("ALTER TABLE folders ADD plain json")
	b.Exec("INSERT INTO folders SELECT i, repeat('x', 1000000) FROM generate_series(1, 70) AS i")
	b.Exec(`INSERT INTO folders VALUES (201, repeat('x', 1100000), NULL), (202, '', to_json(repeat('x', 1100000)))`)
	b.Exec("DELETE FROM folders WHERE id <= 70")
	require.Equal(t, [][]string{{"2", "70", "0"}}, b.Rows("SELECT count(*)::text, sum(rows)::text, sum(left_out)::text FROM sexton.undo"))
	require.EqualValues(t, 70, b.restore(t, b.last(t).ID).Restored)
	b.Exec("DELETE FROM folders WHERE id > 200")
	require.EqualValues(t, 2, b.last(t).Tables[0].LeftOut)
}

// The first DELETE after a change of the columns notes them, and others do not wait for its end.
func TestDeletionsDoNotWaitForEachOtherToNoteTheColumns(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("INSERT INTO folders SELECT generate_series(1, 3); INSERT INTO files SELECT i, i FROM generate_series(1, 3) AS i")
	b.Exec("ALTER TABLE folders ADD more int DEFAULT 4; ALTER TABLE files ADD more int DEFAULT 5")
	before := b.all("folders", "files")
	first := pgtest.Begin(t, b.Pool())
	pgtest.Exec(t, first, "DELETE FROM folders WHERE id = 1; SELECT sexton.undo_layout('files'::regclass, '{}')")
	b.Exec("SET lock_timeout = '2s'; DELETE FROM folders WHERE id = 2; SET lock_timeout = 0")
	b.drain(t, 0)
	require.NoError(t, first.Commit(t.Context()))
	b.Exec("DELETE FROM folders WHERE id = 3")
	b.drain(t, 0)
	require.Equal(t, "4", pgtest.Scalar[string](t, b, "SELECT count(*)::text FROM sexton.undo_layouts WHERE 'more' = ANY (columns)"))
	for _, unit := range pgtest.Must(b.engine.List(t.Context(), 10))(t) {
		require.Empty(t, b.restore(t, unit.ID).Left)
	}
	require.Equal(t, before, b.all("folders", "files"))
}
