package undo_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
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

// Rows that cannot be kept are deleted all the same, and a column may be called as the function calls a row's size.
func TestADeleteNeverFailsBecauseItsRowsCannotBeKept(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("ALTER TABLE folders ADD sexton_size int; INSERT INTO folders VALUES (1, 'a', 5), (2, 'b', 6), (3, 'c', 7)")
	b.Exec("DELETE FROM folders WHERE id = 1")
	require.Equal(t, "whole", b.last(t).State)
	b.Exec("ALTER TABLE folders ADD sexton_fits int")
	b.Exec("DELETE FROM folders WHERE id > 1")
	unit := b.last(t)
	require.Equal(t, "incomplete", unit.State)
	require.EqualValues(t, 2, unit.Tables[0].LeftOut)
	require.Equal(t, "3", pgtest.Scalar[string](t, b, "SELECT count(*)::text FROM loose_foreign_keys_deleted_records"))
}

// What a batch takes along in its own table makes the deletion incomplete if a cascade did it, and is kept if a statement of a trigger did.
func TestABatchTakesMoreOfItsOwnTableAlong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile, state string
		left             int64
	}{
		"alone":   {"UPDATE files SET above = NULL", "whole", 0},
		"cascade": {"SELECT", "incomplete", 2},
		"statement": {
			"CREATE TRIGGER below AFTER DELETE ON files FOR EACH ROW EXECUTE FUNCTION below(); ALTER TABLE files DROP CONSTRAINT files_above_fkey", "whole", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, folders, foldersDefinitions, "folders", "files")
			b.Exec("CREATE FUNCTION below() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM public.files WHERE above = OLD.id; RETURN NULL; END'")
			b.Exec("INSERT INTO folders VALUES (1); INSERT INTO files VALUES (1, 1, NULL), (2, 1, NULL), (3, NULL, 1), (4, NULL, 3)")
			b.Exec(c.meanwhile)
			before := b.all("files")
			b.Exec("DELETE FROM folders")
			b.drain(t, 0)
			unit := b.last(t)
			require.Equal(t, c.state, unit.State)
			var left int64
			for _, table := range unit.Tables {
				left += table.LeftOut
			}
			require.Equal(t, c.left, left)
			report := b.restore(t, unit.ID)
			require.Empty(t, report.Left)
			if c.left == 0 {
				require.Equal(t, before, b.all("files"))
			} else {
				require.Equal(t, [][]string{{"1"}, {"2"}}, b.Rows("SELECT id::text FROM files ORDER BY id"))
			}
		})
	}
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

// The setting by which batches group their rows is the application's to set, but says nothing of its own rows.
func TestTheApplicationCannotPutItsRowsInAnotherDeletion(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("INSERT INTO folders SELECT generate_series(1, 9)")
	b.Exec("DELETE FROM folders WHERE id = 1")
	victim := b.last(t).ID
	role := b.CreateRole()
	b.Exec("GRANT SELECT, DELETE ON folders TO " + pgx.Identifier{role}.Sanitize())
	app := pgtest.Connect(t, b.AsRole(role))
	remove := func(ctx context.Context, conn *pgx.Conn, id int, setting string) {
		t.Helper()
		_, err := conn.Exec(ctx, "SELECT set_config('sexton.undo', $1, false)", setting)
		require.NoError(t, err)
		pgtest.Exec(t, conn, fmt.Sprintf("DELETE FROM folders WHERE id = %d", id))
	}
	root := pgtest.Scalar[uint32](t, b, "SELECT 'folders'::regclass::oid")
	remove(t.Context(), app, 2, "x")
	remove(t.Context(), app, 3, fmt.Sprintf("%d/0", victim))
	remove(t.Context(), app, 4, fmt.Sprintf("%d/%d", victim, root))
	remove(t.Context(), app, 5, "99999999999999999999999/1")
	mighty := pgtest.Acquire(t, b.Pool()).Conn()
	remove(t.Context(), mighty, 6, "1/x")
	pgtest.Exec(t, mighty, "SET ROLE "+pgx.Identifier{role}.Sanitize())
	remove(t.Context(), mighty, 7, fmt.Sprintf("%d/0", victim))
	pgtest.Exec(t, mighty, "RESET ROLE")
	remove(t.Context(), mighty, 8, fmt.Sprintf("%d/0", victim))
	pgtest.Exec(t, mighty, "RESET sexton.undo")
	require.Len(t, pgtest.Must(b.engine.List(t.Context(), 20))(t), 7, "the last one alone is a worker's")
	shown := pgtest.Must(b.engine.Show(t.Context(), victim))(t)
	require.EqualValues(t, 2, shown.Tables[0].Rows)
}
