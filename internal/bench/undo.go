package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"sexton/internal/problem"
)

// UndoReport compares a drain that keeps what it deletes with one that does not, and the way back with a COPY of the same rows.
type UndoReport struct {
	Head

	Sets []UndoSet `json:"sets"`
}

// UndoSet is the comparison on one data set.
type UndoSet struct {
	Set string `json:"set"`
	// Parents are deleted, Rows are their children. Both come back.
	Parents int64 `json:"parents"`
	Rows    int64 `json:"rows"`

	Variants []Variant `json:"contenders"`

	// RatioDrain and RatioRestore compare rows per second: more is better.
	RatioDrain   float64 `json:"ratio_drain_to_off"`
	RatioWAL     float64 `json:"ratio_wal_to_off"`
	RatioRestore float64 `json:"ratio_restore_to_copy"`
}

// Large is the data set with 50 parents that have 100 children of 20 KB each. The other is that of the drain, wide, with values that do not compress.
const Large = "large"

// UndoSets lists the data sets in their order.
func UndoSets() []string { return []string{Wide, Large} }

// The variants: a drain whose rows come back by COPY, and one that keeps them.
const (
	undoOff = "off"
	undoOn  = "on"
)

// keptSet is a data set whose rows come back.
type keptSet struct {
	dataSet

	keeping *Cluster
}

// Undo deletes parents, lets their children go, and brings all of them back: by COPY where undo is off, and by undo where it is on. Keeping is
// the cluster with undo on.
func Undo(ctx context.Context, g, keeping *Cluster, o Options) (_ Report, err error) {
	r := &UndoReport{Head: g.head("undo", o)}
	newSet := func(name string, scale float64) (keptSet, error) {
		s, err := newDataSet(Wide, scale)
		s.name, s.filler = name, "left(md5(n::text) || md5((-n)::text) || md5(n::text || 'x'), 70)"
		if name == Large {
			s.targets = max(4, s.targets/200)
			s.spared, s.rows = 1, (s.targets+1)*100
			s.parentOf = fmt.Sprintf("(n - 1) %% %d + 1", s.targets+s.spared)
			s.filler = "(SELECT string_agg(md5(n::text || ' ' || i), '') FROM generate_series(1, 640) AS i)"
		}
		return keptSet{s, keeping}, err
	}
	r.Sets, err = compareSets(ctx, g, o, newSet, func(set keptSet, found comparison) UndoSet {
		out := UndoSet{Set: set.name, Parents: set.targets, Rows: found.rows, Variants: found.variants}
		for i, c := range found.variants {
			out.Variants[i].RestoredPerSecond = round(float64(out.Parents+out.Rows)/c.restored.Seconds(), 0)
		}
		off, on := out.Variants[0], out.Variants[1]
		out.RatioDrain, out.RatioWAL = ratio(on.RowsPerSecond, off.RowsPerSecond), ratio(float64(on.WALBytes), float64(off.WALBytes))
		out.RatioRestore = ratio(on.RestoredPerSecond, off.RestoredPerSecond)
		return out
	})
	return r, err
}

// Text writes what was measured, and the ratios.
func (r *UndoReport) Text(w io.Writer) {
	_, _ = fmt.Fprint(w, "set\tundo\trows/s\tWAL MB\trestored rows/s\t"+statementsHead)
	for _, s := range r.Sets {
		for _, c := range s.Variants {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%.0f\t%.1f\t%.0f\t%s", s.Set, c.Name, c.RowsPerSecond, float64(c.WALBytes)/1e6, c.RestoredPerSecond, c.statements())
		}
	}
	_, _ = fmt.Fprintln(w, "\nset\tdrain on / off\tWAL on / off\trestore / COPY\trows")
	for _, s := range r.Sets {
		_, _ = fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%d\n", s.Set, s.RatioDrain, s.RatioWAL, s.RatioRestore, s.Rows)
	}
	r.ending(w, "", ", limits of a pass lifted", "off: the rows come back by COPY, one table at a time\n", "", nil)
}

func (s keptSet) variants() []variant {
	tables := []string{"parents", "children"}
	kept := make([]bytes.Buffer, len(tables))
	return []variant{
		{
			name: undoOff, drain: drainByWorker,
			prepare: func(ctx context.Context, p *dataCopy) error {
				for i, of := range []string{"id", "parent_id"} {
					kept[i].Reset()
					sql := fmt.Sprintf("COPY (SELECT * FROM %s WHERE %s <= %d) TO STDOUT", tables[i], of, s.targets)
					if _, err := p.conn.PgConn().CopyTo(ctx, &kept[i], sql); err != nil {
						return fmt.Errorf("copy rows of %s: %w", tables[i], err)
					}
				}
				return openWorker(ctx, p)
			},
			restore: func(ctx context.Context, p *dataCopy) error {
				for i, table := range tables {
					if _, err := p.conn.PgConn().CopyFrom(ctx, &kept[i], "COPY "+table+" FROM STDIN"); err != nil {
						return fmt.Errorf("copy rows into %s: %w", table, err)
					}
				}
				return nil
			},
		},
		{
			name: undoOn, drain: drainByWorker,
			prepare: func(ctx context.Context, p *dataCopy) error {
				p.cluster = s.keeping
				if err := s.keeping.Install(ctx, p.url, s.definitions()); err != nil {
					return err
				}
				return openWorker(ctx, p)
			},
			restore: func(ctx context.Context, p *dataCopy) error {
				_, err := p.workers[0].Undo(ctx)
				return problem.Doing(err, "undo")
			},
		},
	}
}
