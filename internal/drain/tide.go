package drain

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

const (
	// firstTide is after how many rows of a key the ones that are left are counted first.
	firstTide = 1000
	// mostTides is how often in a row all that were left may have gone while others came. An import of many rows at once is one tide.
	mostTides = 4
)

// Tide finds out whether the rows of a key come back as fast as they go, where so many are there that no look finds all.
type Tide struct {
	// Gone rows have gone. The next count is due at so many.
	Gone, due int64
	// few reports that the last count found fewer than had gone, tides how often all of these have gone since, and others were there.
	few   bool
	tides int
}

// Turns reports that the rows come back. It counts now and then by a statement that counts as many as its last parameter says, which is how many have gone.
func (t *Tide) Turns(ctx context.Context, r *Run, sql string, args ...any) bool {
	if t.Gone < max(t.due, firstTide) {
		return false
	}
	left, err := Query(ctx, r, pgx.RowTo[int64], sql, append(args, t.Gone)...)
	if err != nil {
		left = []int64{t.Gone} // An error that lasts is met by the next batch as well.
	}
	t.tides++
	if !t.few {
		t.tides = 0
	}
	t.few, t.due = left[0] < t.Gone, t.Gone+left[0]+firstTide
	return t.tides == mostTides
}

// turns is Turns for a key, of which n more rows below a window have gone.
func (r *Run) turns(ctx context.Context, t *Tide, n int64, w *Window, f *Ref, leaf pgcatalog.Table, except []Tuple) bool {
	t.Gone += n
	return t.Turns(ctx, r, countStatement(w.Leaf, f, leaf), w.Rows.Args(except)...)
}

// countStatement counts the rows that childrenStatement reads, or chainStatement.
func countStatement(leaf pgcatalog.Table, f *Ref, in pgcatalog.Table) string {
	return fmt.Sprintf("SELECT pg_catalog.count(*) FROM (%s) AS counted", readStatement(leaf, f, in))
}
