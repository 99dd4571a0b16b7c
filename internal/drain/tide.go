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

// tide finds out whether the rows of a key come back as fast as they go, where so many are there that no look finds all.
type tide struct {
	// gone rows have gone. The next count is due at so many.
	gone, due int64
	// few reports that the last count found fewer than had gone, tides how often all of these have gone since, and others were there.
	few   bool
	tides int
}

// turns reports that the rows of a key come back, now that n more have gone. A count reads no more rows than have gone before it.
func (r *Run) turns(ctx context.Context, t *tide, n int64, w *Window, f *Ref, leaf pgcatalog.Table, except []Tuple) bool {
	t.gone += n
	if t.gone < max(t.due, firstTide) {
		return false
	}
	left, err := Query(ctx, r, pgx.RowTo[int64], countStatement(w.Leaf, f, leaf), w.Rows.Args(except, t.gone)...)
	if err != nil {
		left = []int64{t.gone} // An error that lasts is met by the next batch as well.
	}
	t.tides++
	if !t.few {
		t.tides = 0
	}
	t.few, t.due = left[0] < t.gone, t.gone+left[0]+firstTide
	return t.tides == mostTides
}

// countStatement counts the rows that childrenStatement reads, or chainStatement.
func countStatement(leaf pgcatalog.Table, f *Ref, in pgcatalog.Table) string {
	return fmt.Sprintf("SELECT pg_catalog.count(*) FROM (%s) AS counted", readStatement(leaf, f, in))
}
