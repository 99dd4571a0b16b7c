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

// Three deletions wait at the same time, and their clean-ups take turns row by row, or come one after the other. One after the other, each that is undone
// leaves the rows as if it had never happened. Row by row, each undo leaves the rows that another one changed later, and in the end all are as they were.
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
			together := random.IntN(3) > 0
			if together {
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
			for left := 1; together && left > 0; {
				left = 0
				random.Shuffle(3, func(i, j int) { parents[i], parents[j] = parents[j], parents[i] })
				for _, parent := range parents {
					report := b.restore(t, units[parent])
					left += len(report.Left)
					for _, row := range report.Left {
						require.Regexp(t, "^undo deletion [0-9]+ first$", row.Reason)
					}
				}
			}
			slices.Reverse(parents)
			for i, parent := range parents {
				require.Empty(t, b.restore(t, units[parent]).Left)
				b.drain(t, 0)
				want := maps.Clone(before)
				for _, turn := range done {
					for id := range want {
						if turn.rows[id] && slices.Contains(refers[id], turn.parent) && !together && !slices.Contains(parents[:i+1], turn.parent) {
							want[id] = strconv.Itoa(values[turn.parent])
						}
					}
				}
				require.Equal(t, want, b.states(), "%v, without %v: %v", values, parents[:i+1], done)
			}
		})
	}
}
