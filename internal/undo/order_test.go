package undo_test

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two deletions change or delete the same row one after the other. If the later one is
// undone first, the row is as if that deletion had never happened. If the earlier one is
// undone first, the report names the later one as the reason. After both are undone, all
// rows have their former values.
func TestDeletionsThatChangeOneRow(t *testing.T) {
	t.Parallel()
	const both = `
CREATE TABLE p (id bigint PRIMARY KEY); CREATE TABLE q (id bigint PRIMARY KEY);
CREATE TABLE c (id bigint PRIMARY KEY, p bigint, q bigint, state int, title text);
CREATE INDEX ON c (p); CREATE INDEX ON c (q);
INSERT INTO p VALUES (1), (2), (3); INSERT INTO q VALUES (1), (2), (3);
INSERT INTO c VALUES (1, 1, 1, 7, 'a'), (2, 1, 2, 8, 'b'), (3, 2, 1, NULL, 'c');`
	const sets = "{table: %s, column: %[1]s, on_delete: update_column_to, target_column: state, target_value: %d}"
	for name, one := range map[string]struct{ definitions, second, change, left string }{
		"both set a column to values of their own": {definitions: fmt.Sprintf("["+sets+", "+sets+"]", "p", 4, "q", 5)},
		"both set a column to one value":           {definitions: fmt.Sprintf("["+sets+", "+sets+"]", "p", 4, "q", 4)},
		"the second deletes the row": {
			definitions: fmt.Sprintf("["+sets+", {table: q, column: q, on_delete: async_delete}]", "p", 4),
		},
		"the first sets the column to NULL, the second deletes the row": {
			definitions: "[{table: p, column: p, on_delete: async_nullify}, {table: q, column: q, on_delete: async_delete}]",
		},
		"one column refers to both": {
			definitions: "[{table: p, column: p, on_delete: async_nullify}, {table: q, column: p, on_delete: async_nullify}]",
		},
		"one column refers to both, and the second deletes the row": {
			definitions: "[{table: p, column: p, on_delete: async_nullify}, {table: q, column: p, on_delete: async_delete}]",
		},
		"the application writes in between": {
			definitions: "[{table: p, column: p, on_delete: async_nullify}]", second: "DELETE FROM p WHERE id = 2",
			change: "UPDATE c SET p = 2 WHERE id = 1", left: "the row was deleted or changed since",
		},
	} {
		for _, first := range []int{0, 1} {
			t.Run(fmt.Sprint(name, " ", first), func(t *testing.T) {
				t.Parallel()
				deletions := []string{"DELETE FROM p WHERE id = 1", cmp.Or(one.second, "DELETE FROM q WHERE id = 1")}
				run := func(without int) (*bundle, []int64) {
					b := setup(t, both, "c: "+one.definitions, "p", "q")
					units := []int64{0, 0}
					for i, deletion := range deletions {
						if i != without {
							b.Exec(deletion)
							units[i] = b.last(t).ID
						}
						b.drain(t, 0)
						if i == 0 {
							b.Exec("SELECT; " + one.change)
						}
					}
					return b, units
				}
				b, units := run(-1)
				if first == 1 {
					other, _ := run(1)
					require.Empty(t, b.restore(t, units[1]).Left)
					b.drain(t, 0)
					require.Equal(t, other.all("p", "q", "c"), b.all("p", "q", "c"))
				} else {
					for _, left := range b.restore(t, units[0]).Left {
						require.Equal(t, fmt.Sprintf("undo deletion %d first", units[1]), left.Reason)
					}
					b.drain(t, 0)
					require.Empty(t, b.restore(t, units[1]).Left)
				}
				reports := b.restore(t, units[0]).Left
				b.drain(t, 0)
				after := b.all("p", "q", "c")
				// Create the tables again, and apply only the application's later
				// changes.
				b.Exec("DROP TABLE c, p, q;" + both + one.change)
				require.Equal(t, b.all("p", "q", "c"), after)
				if one.left == "" {
					require.Empty(t, reports)
					return
				}
				require.Len(t, reports, 1)
				require.Equal(t, one.left, reports[0].Reason)
			})
		}
	}
}
