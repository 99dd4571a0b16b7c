package triggers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

// Columns that were dropped, and partitions with another order, move what a column's number means.
const shifted = `
CREATE TABLE plain (gone int, id int PRIMARY KEY, note text); ALTER TABLE plain DROP COLUMN gone;
CREATE TABLE pairs (a int, b text, PRIMARY KEY (a, b));
CREATE TABLE events (id bigint, note text) PARTITION BY RANGE (id);
CREATE TABLE events_low (gone int, note text, id bigint);
ALTER TABLE events_low DROP COLUMN gone;
ALTER TABLE events ATTACH PARTITION events_low FOR VALUES FROM (0) TO (100);
INSERT INTO plain SELECT i, 'x' FROM generate_series(1, 6) AS i;
INSERT INTO pairs SELECT i, 'x' FROM generate_series(1, 6) AS i;
INSERT INTO events SELECT i, 'x' FROM generate_series(1, 6) AS i`

func TestRenamedKeyIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, shifted)
	b.cfg.Truncate = triggers.Capture
	b.install(id("plain"), pair("pairs", "a", "b"), id("events"))
	b.Exec(`DELETE FROM plain WHERE id = 1; DELETE FROM pairs WHERE a = 1; DELETE FROM events WHERE id = 1`)
	// The old name comes back for a column that is something else.
	b.Exec(`ALTER TABLE plain RENAME id TO "Key, 'x'"; ALTER TABLE plain ADD id text DEFAULT 'wrong';
		ALTER TABLE pairs RENAME b TO c; ALTER TABLE events RENAME id TO key`)
	b.Exec(`DELETE FROM plain WHERE "Key, 'x'" = 2; DELETE FROM pairs WHERE a = 2; DELETE FROM events WHERE key = 2; DELETE FROM events_low WHERE key = 3`)

	renamed := []triggers.Parent{pair("plain", "Key, 'x'"), pair("pairs", "a", "c"), pair("events", "key")}
	other := pgtest.Must(triggers.OtherKeys(t.Context(), b.conn, b.cfg, renamed))(t)
	require.Empty(t, other, "the same columns under other names")
	require.NotEmpty(t, b.status(renamed...), "the functions are to be renewed")
	b.install(renamed...)
	require.Empty(t, b.status(renamed...))
	b.Exec(`DELETE FROM plain WHERE "Key, 'x'" = 3; DELETE FROM pairs WHERE a = 3; DELETE FROM events WHERE key = 4`)
	b.Exec(`ALTER TABLE pairs RENAME a TO d; ALTER TABLE events RENAME key TO id; ALTER TABLE plain RENAME "Key, 'x'" TO other;
		DELETE FROM plain WHERE other < 6; DELETE FROM pairs WHERE d < 6; DELETE FROM events WHERE id < 6`)
	b.Exec("TRUNCATE plain; TRUNCATE pairs; TRUNCATE events")
	want := []string{}
	for _, table := range []string{"events ", "pairs {", "plain "} {
		for _, key := range []string{"1", "2", "3", "4", "5", "6"} {
			if table == "pairs {" {
				key += ",x}"
			}
			want = append(want, "public."+table+key)
		}
	}
	require.Equal(t, want, b.tombstones())
}

func TestChangedTypeOfKeyIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE plain (id int PRIMARY KEY); INSERT INTO plain SELECT generate_series(1, 4)")
	b.cfg.Truncate = triggers.Capture
	forms := func() (integers, texts int) {
		return pgtest.Scalar[int](t, b.Database, "SELECT count(primary_key_value)::int FROM loose_foreign_keys_deleted_records"),
			pgtest.Scalar[int](t, b.Database, "SELECT count(primary_key_text)::int FROM loose_foreign_keys_deleted_records")
	}
	requireForms := func(integers, texts int) {
		t.Helper()
		i, s := forms()
		require.Equal(t, [2]int{integers, texts}, [2]int{i, s})
	}
	b.install(id("plain"))
	b.Exec("DELETE FROM plain WHERE id = 1; ALTER TABLE plain ALTER id TYPE numeric; INSERT INTO plain VALUES (5.5); DELETE FROM plain WHERE id IN (2, 5.5)")
	requireForms(1, 2)
	other := pgtest.Must(triggers.OtherKeys(t.Context(), b.conn, b.cfg, []triggers.Parent{id("plain")}))(t)
	require.Equal(t, map[int]triggers.OtherKey{0: {Table: "public.plain", TypeOnly: true}}, other)
	b.install(id("plain"))
	requireForms(0, 3)
	require.Empty(t, b.status(id("plain")))
	b.Exec("DELETE FROM loose_foreign_keys_deleted_records WHERE primary_key_text = '5.5'; ALTER TABLE plain ALTER id TYPE bigint; DELETE FROM plain WHERE id = 3")
	b.install(id("plain"))
	requireForms(3, 0)
	b.Exec("ALTER TABLE plain ALTER id TYPE text; TRUNCATE plain")
	require.Equal(t, []string{"public.plain 1", "public.plain 2", "public.plain 3", "public.plain 4"}, b.tombstones())
}

// Two columns that changed their names are two columns: their values are the same only if somebody says so.
func TestSwappedKeyColumns(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE plain (id int PRIMARY KEY, big bigint NOT NULL UNIQUE); INSERT INTO plain VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
	b.install(id("plain"))
	b.Exec("ALTER TABLE plain RENAME id TO small; ALTER TABLE plain RENAME big TO id; UPDATE plain SET small = -id; DELETE FROM plain WHERE id = 2")
	other := pgtest.Must(triggers.OtherKeys(t.Context(), b.conn, b.cfg, []triggers.Parent{id("plain")}))(t)
	require.Equal(t, map[int]triggers.OtherKey{0: {Table: "public.plain"}}, other)
	_, err := triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{id("plain")})
	require.ErrorContains(t, err, "--same-key")
	b.cfg.SameKey = true
	b.install(id("plain"))
	b.Exec("DELETE FROM plain WHERE id = 3")
	// A column that is no more leaves the name.
	b.Exec("ALTER TABLE plain RENAME id TO last; ALTER TABLE plain ADD id int; UPDATE plain SET id = 7; ALTER TABLE plain DROP last; DELETE FROM plain WHERE id = 7")
	require.Equal(t, []string{"public.plain -2", "public.plain 3", "public.plain 7", "public.plain 7"}, b.tombstones())
}

// A restored dump has no dropped columns, so that numbers are about other columns there.
func TestNumbersOfAnotherTableAreNotFollowed(t *testing.T) {
	t.Parallel()
	b := setup(t, shifted)
	b.install(id("plain"))
	b.Exec(`ALTER TABLE plain RENAME TO before; CREATE TABLE plain (id int PRIMARY KEY, note int); INSERT INTO plain VALUES (1, 9);
		DO $$ BEGIN EXECUTE (SELECT replace(pg_get_triggerdef(oid), 'public.before', 'public.plain') FROM pg_trigger
			WHERE tgrelid = 'before'::regclass AND tgname = 'sexton_track'); END $$;
		DELETE FROM plain`)
	require.Equal(t, []string{"public.plain 1"}, b.tombstones())
	require.Empty(t, pgtest.Must(triggers.OtherKeys(t.Context(), b.conn, b.cfg, []triggers.Parent{id("plain")}))(t))
}
