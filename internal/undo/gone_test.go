package undo_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/triggers"
)

// A row comes back, too, where a parent has gone whose clean-up only changes rows: with the value that it has set, or that it has yet to set.
func TestARowComesBackWithoutAParentWhoseCleanUpChangesIt(t *testing.T) {
	t.Parallel()
	const deletes = "{table: r, column: r, on_delete: async_delete}"
	nullifies := "{table: p, column: p, on_delete: async_nullify}"
	p, q, r := "DELETE FROM p WHERE id = 1", "DELETE FROM q WHERE id = 1", "DELETE FROM r WHERE id = 1"
	written := "UPDATE c SET state = 9"
	for name, one := range map[string]struct {
		definitions string
		steps       []string
		left        int
	}{
		"set before":            {setsTo("p", "state", 4) + ", " + deletes, []string{p, r}, 0},
		"set before, twice":     {setsTo("p", "state", 4) + ", " + setsTo("q", "state", 5) + ", " + deletes, []string{p, q, r}, 0},
		"set, and written":      {setsTo("p", "state", 4) + ", " + setsTo("q", "state", 5) + ", " + deletes, []string{p, q, written, r}, 0},
		"set later":             {setsTo("p", "state", 4) + ", " + deletes, []string{r, p}, 0},
		"NULL later":            {nullifies + ", " + deletes, []string{r, p}, 0},
		"NULL later, and set":   {nullifies + ", " + setsTo("q", "state", 5) + ", " + deletes, []string{r, q, p}, 0},
		"set once more later":   {setsTo("p", "state", 4) + ", " + setsTo("q", "state", 5) + ", " + deletes, []string{p, r, q}, 0},
		"set twice later":       {setsTo("p", "state", 4) + ", " + setsTo("q", "state", 5) + ", " + deletes, []string{r, q, p}, 1},
		"deleted by two others": {"{table: q, column: q, on_delete: async_delete}, " + deletes, []string{r, q}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(without string) (*bundle, int64) {
				b, unit := setup(t, threeParents, "c: ["+one.definitions+"]", "p", "q", "r"), int64(0)
				for _, step := range one.steps {
					if step != without {
						b.Exec(step)
					}
					if step == r && step != without {
						unit = b.last(t).ID
					}
					b.drain(t, 0)
				}
				return b, unit
			}
			b, unit := run("")
			dry, err := b.engine.Restore(t.Context(), unit, true)
			require.NoError(t, err)
			report := b.restore(t, unit)
			b.drain(t, 0)
			require.Len(t, report.Left, one.left)
			if one.left > 0 {
				require.Contains(t, report.Left[0].Reason, "gone")
				return
			}
			require.Equal(t, dry.Restored, report.Restored)
			other, _ := run(r)
			require.Equal(t, other.all("p", "q", "r", "c"), b.all("p", "q", "r", "c"), fmt.Sprint(one.steps))
		})
	}
}

// Where a later deletion has changed one of the columns that one has changed together, the former values come back behind it: not before, and not where
// the application has written there since.
func TestColumnsThatWereChangedTogetherAndOneOfThemAgain(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		b := setup(t, threeParents+"CREATE TABLE k (a bigint, b bigint, PRIMARY KEY (a, b)); INSERT INTO k VALUES (1, 1), (1, 2), (2, 1)",
			"c: [{table: k, column: [p, q], parent_column: [a, b], on_delete: async_nullify}, "+setsTo("r", "q", 9)+"]", "r")
		b.TrackKeys(t, triggers.Parent{Schema: "public", Table: "k", KeyColumns: []string{"a", "b"}, Undo: triggers.KeepsAll})
		before := b.all("k", "r", "c")
		b.Exec("DELETE FROM k WHERE a = 1 AND b = 1")
		first := b.last(t).ID
		b.drain(t, 0)
		b.Exec("DELETE FROM r WHERE id = 1")
		second := b.last(t).ID
		b.drain(t, 0)
		if written {
			b.Exec("UPDATE c SET q = NULL WHERE id = 1")
		}
		now := b.all("c")
		require.Len(t, b.restore(t, first).Left, 1) // Row 4 refers to another r.
		require.Equal(t, now[0][0], b.all("c")[0][0])
		left := b.restore(t, second).Left
		b.drain(t, 0)
		if written {
			require.Len(t, left, 1)
			continue
		}
		require.Empty(t, left)
		require.Empty(t, b.restore(t, first).Left)
		require.Equal(t, before, b.all("k", "r", "c"))
	}
}
