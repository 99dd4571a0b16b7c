package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

// A clean-up that passed over a row is done for that row alone: what the application has written to others since stays.
func TestOnlyRowsThatWerePassedOverAreCleanedUp(t *testing.T) {
	t.Parallel()
	for _, action := range []string{setsTo("q", "state", 4), "{table: q, column: q, on_delete: async_nullify, conditions: [{column: state, value: 7}]}"} {
		b := setup(t, threeParents+"UPDATE c SET state = 7 WHERE id = 3", "c: ["+setsTo("p", "state", 4)+", "+action+"]", "p", "q")
		run := func(without bool) {
			b.Exec("UPDATE c SET state = 7, q = 1 WHERE id IN (1, 3)")
			if !without {
				b.Exec("DELETE FROM p WHERE id = 1")
				b.drain(t, 0)
			}
			b.Exec("DELETE FROM q WHERE id = 1")
			b.drain(t, 0)
			b.Exec("UPDATE c SET state = 7, q = 1 WHERE id = 3")
		}
		other := b
		b = setup(t, threeParents+"UPDATE c SET state = 7 WHERE id = 3", b.definitions, "p", "q")
		run(true)
		other, b = b, other
		run(false)
		units := pgtest.Must(b.engine.List(t.Context(), 2))(t)
		require.Empty(t, b.restore(t, units[1].ID).Left)
		b.drain(t, 0)
		require.Equal(t, other.all("p", "q", "c"), b.all("p", "q", "c"))
		require.Len(t, b.restore(t, units[0].ID).Left, 1)
		b.drain(t, 0)
		require.Equal(t, [][]string{{"1", "7", "1"}, {"3", "7", "1"}}, b.Rows("SELECT id::text, state::text, q::text FROM c WHERE id IN (1, 3) ORDER BY 1"))
	}
}

// So it is in partitions and by keys of any form, and the value that it finds then is kept: the columns may come back in any order.
func TestRowsOfPartitionsThatWerePassedOver(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TABLE p (id text PRIMARY KEY); CREATE TABLE q (id text PRIMARY KEY); CREATE TABLE k (a bigint, b text, PRIMARY KEY (a, b));
INSERT INTO p VALUES ('x'); INSERT INTO q VALUES ('a,"b'); INSERT INTO k VALUES (1, 'a,"b');
CREATE TABLE c (id bigint, p text, q text, a bigint, state int, title text, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE c_1 PARTITION OF c FOR VALUES IN (1, 2); CREATE TABLE c_2 PARTITION OF c FOR VALUES IN (3, 4);
CREATE INDEX ON c (p); CREATE INDEX ON c (q); CREATE INDEX ON c (a, q);
INSERT INTO c SELECT i, 'x', 'a,"b', 1, i % 4 + 1, 'as it was' FROM generate_series(1, 8) AS i`, `c: [
	{table: p, column: p, on_delete: update_column_to, target_column: title, target_value: gone},
	{table: q, column: q, on_delete: update_column_to, target_column: title, target_value: gone},
	{table: k, column: [a, q], parent_column: [a, b], on_delete: update_column_to, target_column: title, target_value: gone}]`, "p", "q")
	b.TrackKeys(t, triggers.Parent{Schema: "public", Table: "k", KeyColumns: []string{"a", "b"}, Undo: triggers.KeepsAll})
	before, tables := b.all("c"), []string{"p", "q", "k"}
	units := map[string]int64{}
	for _, table := range tables {
		b.Exec("DELETE FROM " + table)
		units[table] = b.last(t).ID
		b.drain(t, 0)
	}
	for i, table := range tables {
		require.Empty(t, b.restore(t, units[table]).Left)
		require.Zero(t, len(b.Rows("SELECT FROM loose_foreign_keys_deleted_records")))
		want := "8"
		if i == 2 {
			want = "0"
		}
		require.Equal(t, [][]string{{want}}, b.Rows("SELECT count(*)::text FROM c WHERE title = 'gone'"))
	}
	require.Equal(t, before, b.all("c"))
}

// A clean-up may set a part of the primary key: the row has its value back although it is found no more by the key that was kept.
func TestARowThatWasPassedOverGetsAnotherKey(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TABLE p (id bigint PRIMARY KEY); CREATE TABLE q (id bigint PRIMARY KEY); INSERT INTO p VALUES (1); INSERT INTO q VALUES (1);
CREATE TABLE c (id bigint, p bigint, q bigint, state int, title text, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE c_1 PARTITION OF c FOR VALUES IN (1); CREATE TABLE c_2 PARTITION OF c FOR VALUES IN (2);
CREATE INDEX ON c (p); CREATE INDEX ON c (q); INSERT INTO c VALUES (1, 1, 1, 1, 'open')`, `c: [
	{table: p, column: p, on_delete: update_column_to, target_column: title, target_value: gone},
	{table: q, column: q, on_delete: update_column_to, target_column: state, target_value: 2, conditions: [{column: title, value: open}]}]`, "p", "q")
	b.Exec("DELETE FROM p")
	unit := b.last(t).ID
	b.drain(t, 0)
	b.Exec("DELETE FROM q")
	b.drain(t, 0)
	report := b.restore(t, unit)
	require.Empty(t, report.Left)
	require.EqualValues(t, 2, report.Restored)
	require.Equal(t, [][]string{{"2", "open"}}, b.Rows("SELECT state::text, title FROM c"))
	require.Empty(t, b.restore(t, unit).Left)
}
