package groupdelete

import (
	"context"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
)

// Foresee counts the rows below a group, in READ ONLY transactions of a few seconds.
// loose is the plan of ResolveLoose, or nil. Foresee returns nil if the group does not
// exist.
func Foresee(ctx context.Context, db pgcatalog.Beginner, plan, loose *Plan, group dml.ID) (*dml.Foresight, error) {
	seen, err := foresee(ctx, db, plan, group)
	if err != nil || seen == nil || loose == nil {
		return seen, err
	}
	all, err := foresee(ctx, db, loose, group)
	if err != nil || all == nil {
		return nil, err
	}
	seen.Later(all)
	return seen, nil
}

func foresee(ctx context.Context, db pgcatalog.Beginner, plan *Plan, group dml.ID) (*dml.Foresight, error) {
	read := dml.ReadOnly(db, dml.ForeseeTime)
	w, err := plan.groupWindow(ctx, read, group, []dml.ID{group})
	if err != nil || w == nil {
		return nil, err
	}
	seen := dml.NewForesight()
	seen.Blocking = plan.Blocking()
	if err := seen.Below(ctx, read, (*table).Label, w); err != nil {
		return nil, err
	}
	seen.Deleted[w.Table.Label()]++
	seen.Rows = 0
	for _, n := range seen.Deleted {
		seen.Rows += n
	}
	if seen.Capped {
		guessed, err := plan.estimate(ctx, read, group)
		if err != nil && batch.Judge(err).Verdict != batch.Timeout {
			return nil, err
		}
		seen.Rows = max(seen.Rows, guessed)
	}
	return seen, nil
}
