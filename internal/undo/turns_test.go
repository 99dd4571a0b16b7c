package undo_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

// cleanUp drains the clean-up after one table's rows, and no further than so many rows.
func (b *bundle) cleanUp(t *testing.T, table string, limit int) {
	const due = "UPDATE loose_foreign_keys_deleted_records SET consume_after = CASE WHEN fully_qualified_table_name = $1 THEN now() ELSE 'infinity' END"
	b.Exec(due, "public."+table)
	b.drain(t, limit)
}

// states are those of the rows of c.
func (b *bundle) states() map[string]string {
	found := map[string]string{}
	for _, row := range b.Rows("SELECT id::text, coalesce(state::text, '') FROM c") {
		found[row[0]] = row[1]
	}
	return found
}

// Three deletions wait at the same time, and their clean-ups take turns row by row, or come one after the other. Each that is taken back leaves the rows as
// if it had never happened: what passed over a row by its value has cleaned up after that, and nothing else has changed.
func TestCleanUpsThatTakeTurns(t *testing.T) {
	t.Parallel()
	const each = 12
	turns := uint64(4)
	if pgtest.Long {
		turns = 30
	}
	for seed := range turns {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 71))
			parents, values := []string{"p", "q", "r"}, map[string]int{}
			definitions := ""
			for _, parent := range parents {
				values[parent] = 4 + random.IntN(3)
				definitions += setsTo(parent, "state", values[parent]) + ", "
			}
			b := setup(t, threeParents+"TRUNCATE c", "c: ["+definitions+"]", parents...)
			refers := map[string][]string{}
			for id := range each {
				row := []any{id, random.IntN(3), random.IntN(3), random.IntN(3), 7 + random.IntN(3)}
				for i, parent := range parents {
					if row[i+1].(int) > 0 {
						row[i+1], refers[strconv.Itoa(id)] = 1, append(refers[strconv.Itoa(id)], parent)
					}
				}
				b.Exec("INSERT INTO c VALUES ($1, nullif($2, 0), nullif($3, 0), nullif($4, 0), $5)", row...)
			}
			before := b.states()
			units := map[string]int64{}
			gone := func(parent string) {
				b.Exec("DELETE FROM " + parent + " WHERE id = 1")
				units[parent] = b.last(t).ID
			}
			// Each turn cleans up after a parent: it takes rows, and the one that ends the clean-up passes over its others.
			type turn struct {
				parent string
				rows   map[string]bool
			}
			var done []turn
			take := func(parent string, limit int) {
				was := b.states()
				waits := "SELECT FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public." + parent + "'"
				ends := len(b.Rows(waits)) > 0
				b.cleanUp(t, parent, limit)
				ends = ends && len(b.Rows(waits)) == 0
				rows := map[string]bool{}
				for id, state := range b.states() {
					rows[id] = ends || state != was[id]
				}
				done = append(done, turn{parent, rows})
			}
			if together := random.IntN(3) > 0; together {
				for _, parent := range parents {
					gone(parent)
				}
				for range 6 {
					take(parents[random.IntN(3)], 1+random.IntN(3))
				}
				random.Shuffle(3, func(i, j int) { parents[i], parents[j] = parents[j], parents[i] })
				for _, parent := range parents {
					take(parent, 0)
				}
			} else {
				for _, parent := range parents {
					gone(parent)
					take(parent, 0)
				}
			}
			random.Shuffle(3, func(i, j int) { parents[i], parents[j] = parents[j], parents[i] })
			for i, parent := range parents {
				require.Empty(t, b.restore(t, units[parent]).Left)
				b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
				b.drain(t, 0)
				want := maps.Clone(before)
				for _, turn := range done {
					for id := range want {
						if turn.rows[id] && slices.Contains(refers[id], turn.parent) && !slices.Contains(parents[:i+1], turn.parent) {
							want[id] = strconv.Itoa(values[turn.parent])
						}
					}
				}
				require.Equal(t, want, b.states(), "%v, without %v: %v", values, parents[:i+1], done)
			}
		})
	}
}

// A clean-up that passed over a row is done for that row alone: what the application has written to others since stays.
func TestOnlyRowsThatWerePassedOverAreCleanedUp(t *testing.T) {
	t.Parallel()
	for _, action := range []string{setsTo("q", "state", 4), "{table: q, column: q, on_delete: async_nullify, conditions: [{column: state, value: 7}]}"} {
		b := setup(t, threeParents+"UPDATE c SET state = 7 WHERE id = 3", "c: ["+setsTo("p", "state", 4)+", "+action+"]", "p", "q")
		run := func(without bool) {
			b.Exec("UPDATE c SET state = 7, q = 1 WHERE id IN (1, 3)")
			if !without {
				b.delete(t, "p WHERE id = 1")
			}
			b.delete(t, "q WHERE id = 1")
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
		require.Empty(t, b.Rows("SELECT FROM loose_foreign_keys_deleted_records"))
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
	unit := b.delete(t, "p")
	b.delete(t, "q")
	report := b.restore(t, unit)
	require.Empty(t, report.Left)
	require.EqualValues(t, 2, report.Restored)
	require.Equal(t, [][]string{{"2", "open"}}, b.Rows("SELECT state::text, title FROM c"))
	require.Empty(t, b.restore(t, unit).Left)
}
