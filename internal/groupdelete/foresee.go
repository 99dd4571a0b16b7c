package groupdelete

import (
	"context"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/pgcatalog"
)

// Foresee counts what hangs below a group and looks for what forbids its destruction, in READ ONLY transactions of a few seconds. loose
// is the plan of ResolveLoose, or nil. It returns nil where there is no such group.
func Foresee(ctx context.Context, db pgcatalog.Beginner, names pgcatalog.Names, plan, loose *Plan, group int64) (*drain.Foresight, error) {
	seen, err := foresee(ctx, db, names, plan, group)
	if err != nil || seen == nil || loose == nil {
		return seen, err
	}
	all, err := foresee(ctx, db, names, loose, group)
	if err != nil || all == nil {
		return nil, err
	}
	seen.Later(all)
	return seen, nil
}

func foresee(ctx context.Context, db pgcatalog.Beginner, names pgcatalog.Names, plan *Plan, group int64) (*drain.Foresight, error) {
	r := &run{engine: &Engine{Plan: plan, GroupID: group}, stats: newStats(group), line: []int64{group}}
	r.Run = &drain.Run{Session: &batch.Session{Names: names}, Send: drain.ReadOnly(db, drain.ForeseeTime)}
	w, err := r.groupWindow(ctx, group)
	if err != nil || w == nil {
		return nil, err
	}
	ids, err := r.subtree(ctx)
	if err != nil {
		return nil, err
	}
	forbidden, err := r.forbidden(ctx, ids)
	if err != nil {
		return nil, err
	}
	seen := drain.NewForesight()
	if forbidden != nil {
		seen.Forbidden = append(seen.Forbidden, forbidden.Text())
	}
	if err := seen.Below(ctx, r.Run, (*table).Label, w); err != nil {
		return nil, err
	}
	seen.Deleted[w.Table.Label()]++
	seen.Rows = 0
	for _, n := range seen.Deleted {
		seen.Rows += n
	}
	if seen.Capped {
		guessed, err := r.estimate(ctx, ids)
		if err != nil && batch.Judge(err).Verdict != batch.Timeout {
			return nil, err
		}
		seen.Rows = max(seen.Rows, guessed)
	}
	return seen, nil
}
