package bench

import (
	"bytes"
	"context"
	"fmt"

	"sexton/internal/problem"
)

// undos says what Undo compares: a drain that keeps what it deletes with one that does not, and the way back with a COPY of the same rows.
func undos() contest {
	return contest{
		name: "undo", targets: "parents",
		ratios: []contestRatio{
			{"ratio_drain_to_off", "drain on / off", speeds(undoOn, undoOff), ""},
			{"ratio_wal_to_off", "WAL on / off", wals(undoOn, undoOff), ""},
			{"ratio_restore_to_copy", "restore / COPY", func(c comparison) float64 {
				return ratio(c.of(undoOff).restored.Seconds(), c.of(undoOn).restored.Seconds())
			}, ""},
		},
		how: ", limits of a pass lifted", note: "off: the rows come back by COPY, one table at a time",
	}
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
func Undo(ctx context.Context, g, keeping *Cluster, o Options) (*Report, error) {
	newSet := func(name string, scale float64) (keptSet, error) {
		s, err := newDataSet(Wide, scale)
		s.Name, s.Filler = name, "left(md5(n::text) || md5((-n)::text) || md5(n::text || 'x'), 70)"
		if name == Large {
			s.Targets = max(4, s.Targets/200)
			s.Spared, s.Rows = 1, (s.Targets+1)*100
			s.ParentOf = fmt.Sprintf("(n - 1) %% %d + 1", s.Targets+s.Spared)
			s.Filler = "(SELECT string_agg(md5(n::text || ' ' || i), '') FROM generate_series(1, 640) AS i)"
		}
		return keptSet{s, keeping}, err
	}
	return compareSets(ctx, g, o, undos(), newSet)
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
					sql := fmt.Sprintf("COPY (SELECT * FROM %s WHERE %s <= %d) TO STDOUT", tables[i], of, s.Targets)
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
				if err := s.keeping.Install(ctx, p.url, s.source().definitions); err != nil {
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
