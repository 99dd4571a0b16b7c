package dml

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/pgcatalog"
)

const (
	// MostForeseen limits the rows that are counted per column, and the total of the rows
	// that are counted below other rows.
	MostForeseen = 100_000
	// ForeseeTime is the timeout of a statement that counts.
	ForeseeTime = 5 * time.Second
)

// Foresight holds the numbers of rows that a deletion would delete or change.
type Foresight struct {
	// Moved and Deleted count rows by table. Nullified counts rows that are kept, by
	// table or, if they refer to deleted rows, by table.column.
	Moved     map[string]int64 `json:"moved,omitempty"`
	Deleted   map[string]int64 `json:"deleted"`
	Nullified map[string]int64 `json:"nullified"`
	// Loose counts the rows that loose foreign keys delete or change later. If Capped is
	// set, there may be more.
	Loose map[string]int64 `json:"loose,omitempty"`
	// Rows is the sum of all rows except the loose ones. Capped reports that counting
	// stopped early, so that Rows is an estimate.
	Rows   int64 `json:"rows"`
	Capped bool  `json:"capped"`
	// Forbidden lists the reasons why the deletion is impossible. It is empty if none was
	// found.
	Forbidden []string `json:"forbidden"`
	// Blocking lists the foreign keys whose rows prevent the deletion unless they are
	// deleted first.
	Blocking []string `json:"blocking,omitempty"`
}

// NewForesight returns an empty Foresight.
func NewForesight() *Foresight {
	return &Foresight{
		Moved: map[string]int64{}, Deleted: map[string]int64{}, Nullified: map[string]int64{},
		Forbidden: []string{},
	}
}

// Later sets f.Loose to the rows that only loose references delete or change. f counts
// only the rows of foreign keys. all also counts the rows of loose references, which it
// treats like foreign keys.
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

// Below adds the rows that are deleted or changed with the windows' rows. It does not
// count the windows' rows themselves. It counts a deleted row once, even if several
// references lead to it.
func (f *Foresight) Below(ctx context.Context, read Reader, label func(*Table) string, windows ...*Window) error {
	known := map[uint32]map[Tuple]bool{}
	// addRows adds the rows of a window to known and returns how many of them are new.
	addRows := func(w *Window) (n int64) {
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
		addRows(w)
	}
	left := MostForeseen
	for _, w := range windows {
		c, err := w.Expand(ctx, read, len(w.Rows)+left)
		if err != nil && batch.Judge(err).Verdict != batch.Timeout {
			return err
		}
		f.Capped = f.Capped || c.Incomplete || err != nil
		left = max(0, left-(c.Rows-len(w.Rows)))
		for _, with := range c.Windows[1:] {
			if n := addRows(with); n > 0 {
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

// ReadOnly returns a Reader that runs statements in READ ONLY transactions with a
// statement timeout.
func ReadOnly(db pgcatalog.Beginner, statementTime time.Duration) Reader {
	return func(ctx context.Context, statements ...batch.Statement) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('transaction_read_only', 'on', true), "+
				"pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), "+
				"pg_catalog.set_config('statement_timeout', $1, true)", statementTime.String())
			for i := 0; i < len(statements) && err == nil; i++ {
				var rows pgx.Rows
				if rows, err = tx.Query(ctx, statements[i].SQL, statements[i].Args...); err == nil {
					err = statements[i].Scan(rows)
					rows.Close()
				}
				if err == nil {
					err = rows.Err()
				}
			}
			return err
		})
	}
}
