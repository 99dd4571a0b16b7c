package dml

import (
	"context"
	"time"

	"sexton/internal/batch"
)

const (
	// MostForeseen bounds the rows of one column that count, and all rows below others.
	MostForeseen = 100_000
	// ForeseeTime bounds a statement that counts.
	ForeseeTime = 5 * time.Second
)

// Foresight foresees a deletion.
type Foresight struct {
	// Moved and Deleted count rows by table, Nullified rows that stay by table, or by table.column below deleted ones.
	Moved     map[string]int64 `json:"moved,omitempty"`
	Deleted   map[string]int64 `json:"deleted"`
	Nullified map[string]int64 `json:"nullified"`
	// Loose are the rows that go or change later, by loose foreign keys; at least as many where Capped is set.
	Loose map[string]int64 `json:"loose,omitempty"`
	// Rows is all of them except the loose ones, an estimate where Capped reports that counting stopped before the end.
	Rows   int64 `json:"rows"`
	Capped bool  `json:"capped"`
	// Forbidden says what stands in the way; empty where nothing was found.
	Forbidden []string `json:"forbidden"`
	// Blocking are foreign keys whose rows stop the deletion unless they are deleted before.
	Blocking []string `json:"blocking,omitempty"`
}

// NewForesight returns one that has counted nothing yet.
func NewForesight() *Foresight {
	return &Foresight{Moved: map[string]int64{}, Deleted: map[string]int64{}, Nullified: map[string]int64{}, Forbidden: []string{}}
}

// Later adds the rows that go or change by loose references alone, which the other foresight counts as well.
func (f *Foresight) Later(all *Foresight) {
	f.Loose, f.Capped = map[string]int64{}, f.Capped || all.Capped
	for _, counts := range [][2]map[string]int64{{all.Deleted, f.Deleted}, {all.Nullified, f.Nullified}} {
		for label, n := range counts[0] {
			if more := n - counts[1][label]; more > 0 {
				f.Loose[label] += more
			}
		}
	}
}

// Below adds what goes or changes with windows' rows, which do not count themselves. A row that would go in several ways counts once.
func (f *Foresight) Below(ctx context.Context, read Reader, label func(*Table) string, windows ...*Window) error {
	known := map[uint32]map[Tuple]bool{}
	// fresh returns how many rows of a window were not known before, and notes them.
	fresh := func(w *Window) (n int64) {
		if known[w.Leaf.OID] == nil {
			known[w.Leaf.OID] = map[Tuple]bool{}
		}
		for _, row := range w.Rows {
			if !known[w.Leaf.OID][row.At] {
				known[w.Leaf.OID][row.At] = true
				n++
			}
		}
		return n
	}
	for _, w := range windows {
		fresh(w)
	}
	left := MostForeseen
	for _, w := range windows {
		c, err := w.Expand(ctx, read, len(w.Rows)+left)
		if err != nil && batch.Judge(err).Verdict != batch.Timeout {
			return err
		}
		f.Capped = f.Capped || c.Most || err != nil
		left = max(0, left-(c.Rows-len(w.Rows)))
		for _, with := range c.Windows[1:] {
			if n := fresh(with); n > 0 {
				f.Deleted[label(with.Table)] += n
				f.Rows += n
			}
		}
		for label, n := range c.Changed {
			f.Nullified[label] += n
			f.Rows += n
		}
	}
	return nil
}
