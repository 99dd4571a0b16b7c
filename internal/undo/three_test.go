package undo_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const threeParents = `
CREATE TABLE p (id bigint PRIMARY KEY); CREATE TABLE q (id bigint PRIMARY KEY); CREATE TABLE r (id bigint PRIMARY KEY);
CREATE TABLE c (id bigint PRIMARY KEY, p bigint, q bigint, r bigint, state int);
CREATE INDEX ON c (p); CREATE INDEX ON c (q); CREATE INDEX ON c (r);
INSERT INTO p VALUES (1), (2), (3); INSERT INTO q VALUES (1), (2), (3), (5); INSERT INTO r VALUES (1), (2), (3);
INSERT INTO c VALUES (1, 1, 1, 1, 7), (2, 1, 2, 1, 8), (3, 2, 1, 1, NULL), (4, 1, 1, 2, 4), (5, 1, 5, 3, 5), (6, 2, 2, 1, 1);`

func setsTo(parent, target string, value int) string {
	return fmt.Sprintf("{table: %s, column: %[1]s, on_delete: update_column_to, target_column: %s, target_value: %d}", parent, target, value)
}

// Three deletions after one another are undone last in, first out. Each that is undone is as if it had never happened. In another order, the rows that
// a later one has changed are left, and nothing else changes.
func TestThreeDeletionsAreUndoneLastInFirstOut(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]int{"three values": {4, 5, 6}, "a value comes again": {4, 5, 4}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(without ...int) (*bundle, []int64) {
				definitions := fmt.Sprintf("c: [%s, %s, %s]", setsTo("p", "state", values[0]), setsTo("q", "state", values[1]), setsTo("r", "state", values[2]))
				b, units := setup(t, threeParents, definitions, "p", "q", "r"), make([]int64, 3)
				for i, from := range []string{"p", "q", "r"} {
					if !slices.Contains(without, i) {
						b.Exec("DELETE FROM " + from + " WHERE id = 1")
						units[i] = b.last(t).ID
					}
					b.drain(t, 0)
				}
				return b, units
			}
			b, units := run()
			before := b.all("c")
			left := b.restore(t, units[0]).Left
			require.NotEmpty(t, left)
			for _, row := range left {
				require.Contains(t, []string{fmt.Sprintf("undo deletion %d first", units[1]), fmt.Sprintf("undo deletion %d first", units[2])}, row.Reason)
				require.Contains(t, b.all("c")[0], before[0][slices.IndexFunc(before[0], func(c []string) bool { return strings.HasPrefix(c[0], "("+row.Key+",") })])
			}
			b, units = run()
			for at, without := range [][]int{{2}, {1, 2}} {
				require.Empty(t, b.restore(t, units[2-at]).Left)
				b.drain(t, 0)
				other, _ := run(without...)
				require.Equal(t, other.all("p", "q", "r", "c"), b.all("p", "q", "r", "c"), "without %v", without)
			}
			require.Empty(t, b.restore(t, units[0]).Left)
			b.drain(t, 0)
			require.Equal(t, [][]string{{"1", "7"}, {"2", "8"}, {"3", ""}, {"4", "4"}, {"5", "5"}, {"6", "1"}},
				b.Rows("SELECT id::text, coalesce(state::text, '') FROM c ORDER BY id"))
		})
	}
}

// A value that is back brings no clean-up after a parent that has never been there, nor of rows that the application has changed since their clean-up.
func TestAnUndoDeletesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, threeParents, "c: [{table: p, column: p, on_delete: async_nullify}, {table: q, column: p, on_delete: async_delete}]", "p", "q")
	b.Exec("INSERT INTO p VALUES (50); INSERT INTO c VALUES (50, 50)")
	before := b.all("p", "q", "c")
	b.delete(t, "p WHERE id = 50")
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
	b.drain(t, 0)
	require.Equal(t, before, b.all("p", "q", "c"))

	b = setup(t, threeParents, fmt.Sprintf("c: [%s, %s]", setsTo("p", "state", 4), setsTo("r", "state", 6)), "p", "r")
	b.delete(t, "p WHERE id = 1")
	b.Exec("UPDATE c SET state = 9 WHERE p = 1")
	before = b.all("p", "r", "c")
	b.delete(t, "r WHERE id = 1")
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
	b.drain(t, 0)
	require.Equal(t, before, b.all("p", "r", "c"))
}

// Rows that later deletions deleted, by the value that was set or for another reason, wait for the undo of those.
func TestRowsThatWentByTheValueThatWasSet(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"r WHERE id = 2", "q WHERE id = 5"}, {"q WHERE id = 5", "r WHERE id = 3"}} {
		b := setup(t, threeParents+"UPDATE c SET p = 2 WHERE id = 5; INSERT INTO c VALUES (7, 1, 1, 3, 0)", "c: ["+setsTo("p", "q", 5)+
			", {table: q, column: q, on_delete: async_delete}, {table: r, column: r, on_delete: async_delete}]", "p", "q", "r")
		before := b.all("p", "q", "r", "c")
		unit := b.delete(t, "p WHERE id = 1")
		var later []int64
		for _, from := range order {
			later = append(later, b.delete(t, from))
		}
		report := b.restore(t, unit)
		require.EqualValues(t, 4, report.LeftRows, "%v", order)
		for _, left := range report.Left {
			require.Contains(t, []string{fmt.Sprintf("undo deletion %d first", later[0]), fmt.Sprintf("undo deletion %d first", later[1])}, left.Reason)
		}
		for _, next := range []int64{later[1], later[0], unit} {
			require.Empty(t, b.restore(t, next).Left)
		}
		require.Equal(t, before, b.all("p", "q", "r", "c"))
	}
}

// What was set is known again in each type, padded ones among them.
func TestTheValueThatWasSetIsKnownAgain(t *testing.T) {
	t.Parallel()
	for kind, value := range map[string]string{"char(5)": "a", "boolean": "true", "numeric(8,2)": `"7.00"`, "timestamptz": `"2021-01-01"`, "text": `"a "`} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := setup(t, threeParents+"ALTER TABLE c ADD v "+kind,
				"c: [{table: p, column: p, on_delete: update_column_to, target_column: v, target_value: "+value+"}]", "p")
			before := b.all("c")
			b.delete(t, "p WHERE id = 1")
			require.NotEqual(t, before, b.all("c"))
			require.Empty(t, b.restore(t, b.last(t).ID).Left)
			require.Equal(t, before, b.all("c"))
		})
	}
}
