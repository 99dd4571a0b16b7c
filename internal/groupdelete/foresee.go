package groupdelete

import (
	"context"
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/fault"
	"sexton/internal/pgschema"
)

const (
	// mostForeseen bounds the rows that Foresee counts, foreseeTime a statement of it.
	mostForeseen = 100_000
	foreseeTime  = 5 * time.Second
)

// Foresight foresees the destruction of a group.
type Foresight struct {
	// Exists is false where there is no such group.
	Exists bool
	// Deleted counts rows by table, Nullified by table.column. Rows is an estimate of the deleted ones where Capped reports that
	// there are more than were counted.
	Deleted, Nullified map[string]int64
	Rows               int64
	Capped             bool
	// Loose are the rows that go or change later, by loose foreign keys from the deleted ones; at least as many where Capped is set.
	Loose map[string]int64
	// Forbidden is why the destruction would be refused, and empty where nothing was found.
	Forbidden string
}

// Foresee counts what hangs below a group and looks for what forbids its destruction, in READ ONLY transactions of a few seconds. loose
// is the plan of ResolveLoose, or nil.
func Foresee(ctx context.Context, db drain.TxBeginner, names pgschema.Names, plan, loose *Plan, group int64) (*Foresight, error) {
	seen, err := foresee(ctx, db, names, plan, group)
	if err != nil || !seen.Exists || loose == nil {
		return seen, err
	}
	all, err := foresee(ctx, db, names, loose, group)
	if err != nil {
		return nil, err
	}
	seen.Loose = drain.Later([2]map[string]int64{all.Deleted, seen.Deleted}, [2]map[string]int64{all.Nullified, seen.Nullified})
	seen.Capped = seen.Capped || all.Capped
	return seen, nil
}

func foresee(ctx context.Context, db drain.TxBeginner, names pgschema.Names, plan *Plan, group int64) (*Foresight, error) {
	r := &run{engine: &Engine{Plan: plan, GroupID: group}, stats: newStats(group), line: []int64{group}}
	r.Run = &drain.Run{Session: &batch.Session{Names: names}, Send: drain.ReadOnly(db, foreseeTime)}
	seen := &Foresight{Deleted: map[string]int64{}, Nullified: map[string]int64{}}
	w, err := r.groupWindow(ctx, group)
	if err != nil || w == nil {
		return seen, err
	}
	seen.Exists = true
	ids, err := r.subtree(ctx)
	if err != nil {
		return nil, err
	}
	forbidden, err := r.forbidden(ctx, ids)
	if err != nil {
		return nil, err
	}
	if forbidden != nil {
		seen.Forbidden = forbidden.Text()
	}
	c, err := r.Spread(ctx, w, mostForeseen)
	if err != nil && fault.Judge(err).Verdict != fault.Timeout {
		return nil, err
	}
	for _, on := range c.Windows {
		seen.Deleted[on.Table.Label()] += int64(on.Rows.Len())
		seen.Rows += int64(on.Rows.Len())
	}
	seen.Nullified, seen.Capped = c.Changed, c.Most || err != nil
	if seen.Capped {
		guessed, err := r.estimate(ctx, ids)
		if err != nil && fault.Judge(err).Verdict != fault.Timeout {
			return nil, err
		}
		seen.Rows = max(seen.Rows, guessed)
	}
	return seen, nil
}
