package undo_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
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

// Of three deletions after one another any are taken back, in any order, as if they had never happened: the clean-up after the others has been done and
// is not done again.
func TestThreeDeletionsComeBackInAnyOrder(t *testing.T) {
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
			orders := [][]int{{1, 2, 0}, {2, 1, 0}}
			if pgtest.Long {
				orders = append(orders, []int{0, 1, 2}, []int{0, 2, 1}, []int{1, 0, 2}, []int{2, 0, 1})
			}
			never := map[string][][][]string{} // what is there without some of the deletions
			for _, order := range orders {
				b, units := run()
				for taken := range 2 {
					b.restore(t, units[order[taken]])
					b.drain(t, 0)
					without := slices.Sorted(slices.Values(order[:taken+1]))
					key := fmt.Sprint(without)
					if never[key] == nil {
						other, _ := run(without...)
						never[key] = other.all("p", "q", "r", "c")
					}
					require.Equal(t, never[key], b.all("p", "q", "r", "c"), "%v, without %v", order, without)
				}
				require.Empty(t, b.restore(t, units[order[2]]).Left)
				b.drain(t, 0)
				require.Equal(t, [][]string{{"1", "7"}, {"2", "8"}, {"3", ""}, {"4", "4"}, {"5", "5"}, {"6", "1"}},
					b.Rows("SELECT id::text, coalesce(state::text, '') FROM c ORDER BY id"))
			}
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

// A row that went by the value that was set is refused, and another one, which went later or sooner for another reason, keeps its former value.
func TestRowsThatWentByTheValueThatWasSet(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"r WHERE id = 2", "q WHERE id = 5"}, {"q WHERE id = 5", "r WHERE id = 3"}} {
		b := setup(t, threeParents+"UPDATE c SET p = 2 WHERE id = 5; INSERT INTO c VALUES (7, 1, 1, 3, 0)", "c: ["+setsTo("p", "q", 5)+
			", {table: q, column: q, on_delete: async_delete}, {table: r, column: r, on_delete: async_delete}]", "p", "q", "r")
		unit := b.delete(t, "p WHERE id = 1")
		for _, from := range order {
			b.Exec("DELETE FROM " + from)
			b.drain(t, 0)
		}
		gone := b.Rows("SELECT u.id FROM (VALUES ('1'), ('2'), ('4'), ('7')) AS u (id) WHERE NOT EXISTS (SELECT FROM c WHERE c.id::text = u.id)")
		require.NotEmpty(t, gone)
		want := 3 // Rows 1, 2 and 7; row 4 went with r.
		if order[0] == "q WHERE id = 5" {
			want = 4
		}
		require.EqualValues(t, want, b.restore(t, unit).LeftRows, "%v", order)
	}
}

// A clean-up that is due again finds the newest deletion of its parent among many.
func TestACleanUpFindsItsDeletionAmongMany(t *testing.T) {
	t.Parallel()
	b := setup(t, threeParents+"INSERT INTO q SELECT generate_series(100, 399)", fmt.Sprintf("c: [%s, %s]", setsTo("p", "state", 4), setsTo("q", "state", 4)), "p", "q")
	unit := b.delete(t, "p WHERE id = 1")
	b.Exec("DO $$ BEGIN FOR i IN 100..399 LOOP DELETE FROM q WHERE id = i; COMMIT; END LOOP; END $$")
	last := b.delete(t, "q WHERE id = 1")
	require.Empty(t, b.restore(t, unit).Left)
	b.drain(t, 0)
	require.Equal(t, [][]string{{"4"}}, b.Rows("SELECT state::text FROM c WHERE id = 1"))
	require.Empty(t, b.restore(t, last).Left)
	require.Equal(t, [][]string{{"7"}}, b.Rows("SELECT state::text FROM c WHERE id = 1"))
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
