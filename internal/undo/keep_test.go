package undo_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

const folders = `
CREATE TABLE folders (id bigint PRIMARY KEY, body text);
CREATE TABLE files (id bigint PRIMARY KEY, folder_id bigint, above bigint REFERENCES files ON DELETE CASCADE);
CREATE INDEX ON files (folder_id);
CREATE INDEX ON files (above);`

const foldersDefinitions = "files: [{table: folders, column: folder_id, on_delete: async_delete}]\n"

// The limits for the size of a set and of a row count the uncompressed values.
func TestSizeLimitsCountUncompressedValues(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("ALTER TABLE folders ADD plain json")
	b.Exec("INSERT INTO folders SELECT i, repeat('x', 1000000) FROM generate_series(1, 70) AS i")
	b.Exec(`INSERT INTO folders VALUES (201, repeat('x', 1100000), NULL), (202, '', to_json(repeat('x', 1100000)))`)
	b.Exec("DELETE FROM folders WHERE id <= 70")
	require.Equal(t, [][]string{{"2", "70", "0"}},
		b.Rows("SELECT count(*)::text, sum(rows)::text, sum(left_out)::text FROM sexton.undo"))
	require.EqualValues(t, 70, b.restore(t, b.last(t).ID).Restored)
	b.Exec("DELETE FROM folders WHERE id > 200")
	require.EqualValues(t, 2, b.last(t).Tables[0].LeftOut)
}

// A DELETE succeeds even if its rows cannot be saved. A column may have the same name as
// the column that the trigger adds for the size of a row.
func TestDeleteSucceedsIfRowsCannotBeKept(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("ALTER TABLE folders ADD sexton_size int; INSERT INTO folders VALUES (1, 'a', 5), (2, 'b', 6), (3, 'c', 7)")
	b.Exec("DELETE FROM folders WHERE id = 1")
	require.Equal(t, "complete", b.last(t).State)
	b.Exec("ALTER TABLE sexton.undo ADD CHECK (rows = 0) NOT VALID")
	b.Exec("DELETE FROM folders WHERE id > 1")
	unit := b.last(t)
	require.Equal(t, "incomplete", unit.State)
	require.EqualValues(t, 2, unit.Tables[0].LeftOut)
	require.Equal(t, "3", pgtest.Scalar[string](t, b, "SELECT count(*)::text FROM loose_foreign_keys_deleted_records"))
}

// If a cascade or a trigger deletes more rows of the batch's own table, these are saved
// too. Without a primary key they cannot be distinguished from the batch's rows, and the
// deletion is incomplete.
func TestBatchKeepsMoreRowsOfItsTable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change, state string
		left          int64
	}{
		"no cascade": {"UPDATE files SET above = NULL", "complete", 0},
		"cascade":    {"SELECT", "complete", 0},
		"cascade without a key": {
			"ALTER TABLE files ADD UNIQUE (id), DROP CONSTRAINT files_above_fkey, DROP CONSTRAINT files_pkey, " +
				"ADD FOREIGN KEY (above) REFERENCES files (id) ON DELETE CASCADE", "incomplete", 2,
		},
		"statement": {
			"CREATE TRIGGER below AFTER DELETE ON files FOR EACH ROW EXECUTE FUNCTION below(); ALTER TABLE files DROP CONSTRAINT files_above_fkey", "complete", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, folders, foldersDefinitions, "folders", "files")
			b.Exec("CREATE FUNCTION below() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM public.files WHERE above = OLD.id; RETURN NULL; END'")
			b.Exec("INSERT INTO folders VALUES (1); INSERT INTO files VALUES (1, 1, NULL), (2, 1, NULL), (3, NULL, 1), (4, NULL, 3)")
			b.Exec(c.change)
			before := b.all("files")
			b.delete(t, "folders")
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

// The first DELETE after a change of the columns stores the new layout. Other DELETEs do
// not wait until its transaction ends.
func TestDeletesDoNotWaitForLayout(t *testing.T) {
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
	b.delete(t, "folders WHERE id = 3")
	require.Equal(t, "4",
		pgtest.Scalar[string](t, b, "SELECT count(*)::text FROM sexton.undo_layouts WHERE 'more' = ANY (columns)"))
	for _, unit := range pgtest.Must(b.engine.List(t.Context(), 10))(t) {
		require.Empty(t, b.restore(t, unit.ID).Left)
	}
	require.Equal(t, before, b.all("folders", "files"))
}

// The setting sexton.undo groups the rows of a worker's batches. If an application sets
// it, the rows that the application deletes are still a separate deletion.
func TestApplicationCannotAddRowsToAnotherDeletion(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("INSERT INTO folders SELECT generate_series(1, 9)")
	b.Exec("DELETE FROM folders WHERE id = 1")
	victim := b.last(t).ID
	role := b.CreateRole()
	b.Exec("GRANT SELECT, DELETE ON folders TO " + pgx.Identifier{role}.Sanitize())
	app := pgtest.Connect(t, b.AsRole(role))
	remove := func(ctx context.Context, conn *pgx.Conn, id int, setting string) {
		pgtest.Must(conn.Exec(ctx, "SELECT set_config('sexton.undo', $1, false)", setting))(t)
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
	require.Len(t, pgtest.Must(b.engine.List(t.Context(), 20))(t), 7, "only the last one has the setting of a worker")
	shown := pgtest.Must(b.engine.Show(t.Context(), victim))(t)
	require.EqualValues(t, 2, shown.Tables[0].Rows)
}

// A DELETE of the application succeeds if functions or tables of Sexton are broken or
// missing.
func TestDeleteSucceedsIfSextonTablesAreBroken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ broken, units, left string }{
		"columns cannot be read": {
			"CREATE OR REPLACE FUNCTION sexton.undo_layout(of_table oid, exclude text[]) RETURNS bigint LANGUAGE plpgsql " +
				"AS 'BEGIN RAISE division_by_zero; END'", "1", "2",
		},
		"no columns":  {"DROP FUNCTION sexton.undo_layout", "1", "2"},
		"no sequence": {"DROP SEQUENCE sexton.undo_ids", "0", "0"},
		"no layouts":  {"DROP TABLE sexton.undo_layouts CASCADE", "0", "0"},
		"full":        {"UPDATE sexton.undo_state SET full_since = now()", "1", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, folders, foldersDefinitions, "folders", "files")
			b.Exec("INSERT INTO folders SELECT generate_series(1, 2)")
			b.Exec(c.broken)
			b.Exec("DELETE FROM folders")
			require.Equal(t, [][]string{{"2", c.units}},
				b.Rows("SELECT count(*)::text, count(DISTINCT origin)::text FROM loose_foreign_keys_deleted_records"))
			require.Equal(t, [][]string{{c.left}}, b.Rows("SELECT coalesce(sum(left_out), 0)::text FROM sexton.undo"))
		})
	}
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("INSERT INTO folders VALUES (1); DROP TABLE sexton.undo CASCADE")
	b.Exec("SET sexton.undo = '1/1'; DELETE FROM folders; RESET sexton.undo")
	require.Equal(t, [][]string{{"1"}},
		b.Rows("SELECT count(*)::text FROM loose_foreign_keys_deleted_records WHERE origin IS NULL"))
}

// Children that another transaction commits after the cleanup are deleted by the
// recheck, and are restored with the deletion of their parent.
func TestLateChildrenAreRestored(t *testing.T) {
	t.Parallel()
	for _, forgotten := range []bool{false, true} {
		t.Run(fmt.Sprint(forgotten), func(t *testing.T) {
			t.Parallel()
			b := setup(t, folders, foldersDefinitions, "folders", "files")
			b.Exec("INSERT INTO folders SELECT generate_series(1, 3); INSERT INTO files SELECT i, i FROM generate_series(1, 3) AS i")
			late := b.Begin(t, "INSERT INTO files VALUES (4, 1), (5, 2)")
			b.Exec("DELETE FROM folders WHERE id = 1")
			first := b.last(t).ID
			second := b.delete(t, "folders WHERE id = 2")
			require.Equal(t, [][]string{{"3"}}, b.Rows("SELECT id::text FROM files"))
			if forgotten {
				pgtest.Must(b.engine.Forget(t.Context(), first))(t)
			}
			require.NoError(t, late.Commit(t.Context()))
			require.EqualValues(t, 2, b.drain(t, 0).LateChildren)
			require.Equal(t, [][]string{{"3"}}, b.Rows("SELECT id::text FROM files"))
			require.Empty(t, b.restore(t, second).Left)
			require.Equal(t, [][]string{{"2"}, {"3"}, {"5"}}, b.Rows("SELECT id::text FROM files ORDER BY id"))
			if forgotten {
				require.Empty(t, b.Rows("SELECT FROM sexton.undo WHERE c::text LIKE '%{4%'"),
					"late children are not kept either")
				return
			}
			require.Empty(t, b.restore(t, first).Left)
			require.Equal(t, [][]string{{"1"}, {"2"}, {"3"}, {"4"}, {"5"}},
				b.Rows("SELECT id::text FROM files ORDER BY id"))
		})
	}
}

// If the columns of a table change during a run, the run ends with ErrChanged, counts no
// attempt, and the next run succeeds.
func TestTableChangeDuringRunEndsRun(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("INSERT INTO folders VALUES (1); INSERT INTO files VALUES (1, 1)")
	b.Exec("DELETE FROM folders")
	b.beforeRun = "ALTER TABLE files ADD more int DEFAULT 7"
	_, err := b.run(t, 0)
	require.ErrorIs(t, err, loosefk.ErrChanged)
	require.Equal(t, [][]string{{"0", "NULL"}},
		b.Rows("SELECT cleanup_attempts::text, coalesce(last_error, 'NULL') FROM loose_foreign_keys_deleted_records"))
	b.beforeRun = ""
	b.drain(t, 0)
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
	require.Equal(t, [][]string{{"1", "7"}}, b.Rows("SELECT id::text, more::text FROM files"))
}

// If a child row is too large to save, the cleanup of its parent is deferred without
// counting an attempt. The cleanup of other parents continues.
func TestCleanUpIsDeferredForLargeRow(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders")
	b.waits, b.maxRow = true, 1000
	b.Exec("ALTER TABLE files ADD large text; INSERT INTO folders SELECT generate_series(1, 5)")
	b.Exec("INSERT INTO files SELECT i, i, NULL, CASE WHEN i = 3 THEN repeat('x', 2000) END FROM generate_series(1, 5) AS i")
	b.Exec("DELETE FROM folders")
	stats := pgtest.Must(b.run(t, 0))(t)
	require.Equal(t, "SX006", stats.Errors[0].SQLState)
	require.Equal(t, [][]string{{"3"}}, b.Rows("SELECT id::text FROM files"))
	require.Equal(t, [][]string{{"3", "0", "true"}},
		b.Rows("SELECT primary_key_value::text, cleanup_attempts::text, (consume_after > now())::text FROM loose_foreign_keys_deleted_records"))
	b.maxRow = 4000
	b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.drain(t, 0)
	require.Equal(t, "complete", b.last(t).State)
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
}

// undo_rotate drops expired partitions, also after undo is switched off. In that case it
// creates no new partitions.
func TestDailyPartitionsExpire(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("INSERT INTO folders SELECT generate_series(1, 3)")
	b.Exec("DELETE FROM folders WHERE id = 1")
	b.Exec("DELETE FROM folders WHERE id = 2")
	until := b.last(t).Until
	b.engine.Keep = 0
	require.Equal(t, until, b.last(t).Until, "the database has stored the setting")
	days := "SELECT count(*)::text FROM pg_inherits WHERE inhparent = 'sexton.undo'::regclass"
	require.Equal(t, [][]string{{"9"}}, b.Rows(days), "today, the next seven days, and the default partition")
	b.Exec(`CREATE TABLE sexton.undo_20260101 PARTITION OF sexton.undo FOR VALUES FROM ('2026-01-01') TO ('2026-01-02');
UPDATE sexton.undo SET kept_at = '2026-01-01 12:00' WHERE id = (SELECT min(id) FROM sexton.undo)`)
	b.Exec("SELECT sexton.undo_rotate('undo', '0', false)")
	require.Equal(t, [][]string{{"2"}}, b.Rows(days))
	require.Len(t, pgtest.Must(b.engine.List(t.Context(), 10))(t), 1)
	b.Exec("UPDATE sexton.undo_state SET keep = '-3 days'; SELECT sexton.undo_rotate('undo', '0', false)")
	require.Equal(t, [][]string{{"1"}}, b.Rows(days), "the default partition is kept")
}

// Expired rows in the default partition undo_rest are deleted, unless a row is added
// during the rotation or no worker has stored the retention time yet.
func TestDefaultPartitionExpires(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec(`DO $$ DECLARE part text; BEGIN
	FOR part IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'sexton.undo'::regclass AND inhrelid::regclass::text <> 'sexton.undo_rest' LOOP
		EXECUTE 'DROP TABLE ' || part;
	END LOOP;
END $$`)
	b.Exec("ALTER FUNCTION sexton.undo_rotate SET lock_timeout = '20s'; INSERT INTO folders SELECT generate_series(1, 2)")
	b.Exec("DELETE FROM folders WHERE id = 1; UPDATE sexton.undo_state SET keep = '0'")
	const rotate, count = "SELECT sexton.undo_rotate('undo', '0', false)", "SELECT count(*)::text FROM sexton.undo_rest"
	b.Exec(rotate)
	require.Equal(t, [][]string{{"1"}}, b.Rows(count), "undo is on, but no worker has stored the setting")
	b.Exec("UPDATE sexton.undo_state SET keep = '72 hours'; UPDATE sexton.undo SET kept_at = date_trunc('day', now(), 'UTC') - interval '3 days'; " + rotate)
	require.Equal(t, [][]string{{"1"}}, b.Rows(count), "a row expires 72 hours after the end of its day")

	b.Exec("UPDATE sexton.undo SET kept_at = kept_at - interval '2 days'")
	deletion := b.Begin(t, "DELETE FROM folders WHERE id = 2")
	rotated := dbtest.InBackground(func() (pgconn.CommandTag, error) { return b.Pool().Exec(t.Context(), rotate) })
	pgtest.Await(t, b.Pool(), "the rotation to wait for a lock",
		"SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'sexton.undo_rest'::regclass AND NOT granted)")
	require.NoError(t, deletion.Commit(t.Context()))
	pgtest.Must(rotated())(t)
	require.Equal(t, [][]string{{"2"}}, b.Rows(count), "a row was added during the rotation")
	b.Exec("UPDATE sexton.undo SET kept_at = kept_at - interval '5 days'; " + rotate)
	require.Equal(t, [][]string{{"0"}}, b.Rows(count))
}

// If a trigger of the application prevents the deletion of rows, the rows are not saved.
func TestRowsSavedByTriggerAreNotKept(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec("CREATE FUNCTION spare() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF OLD.id = 2 THEN RETURN NULL; END IF; RETURN OLD; END';" +
		"CREATE TRIGGER spare BEFORE DELETE ON books FOR EACH ROW EXECUTE FUNCTION spare(); CREATE INDEX ON books (author_id)")
	b.Exec("DELETE FROM authors WHERE id = 1")
	pgtest.Must(b.run(t, 0))(t)
	require.Equal(t, [][]string{{"2"}, {"4"}}, b.Rows("SELECT id::text FROM books ORDER BY id"))
	report := b.restore(t, b.last(t).ID)
	require.Empty(t, report.Left)
	require.EqualValues(t, 4, report.Restored, "an author, two books, a film")
}
