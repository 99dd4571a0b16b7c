package groupdelete

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/lease"
)

// mostRefills limits the rounds in which a group has changed, or has new rows, after it
// was cleared.
const mostRefills = 20

// destroyGroup deletes a group while the group is below the run's group. It deletes
// projects first, then sub-groups, memberships and shares, other referencing rows, and at
// last the group.
func (r *run) destroyGroup(ctx context.Context, g dml.ID) (dml.Result, error) {
	if r.refilled[g] > mostRefills {
		return dml.Blocked, nil
	}
	r.lineage = append(r.lineage, g)
	defer func() { r.lineage = r.lineage[:len(r.lineage)-1] }()
	held, cycle := false, false
	for part := projectsPart; part <= restPart; part++ {
		if held && part == membershipsPart {
			// A group keeps its members while it has projects or sub-groups.
			return dml.Blocked, nil
		}
		if err := r.beginPart(ctx, part, g); err != nil {
			return r.handle(err)
		}
		var ended dml.Result
		var err error
		if part == subgroupsPart {
			ended, err = r.subgroups(ctx, g)
		} else {
			ended, cycle, err = r.clearPart(ctx, g, part)
			cycle = cycle && r.Waits && r.Fault == nil && r.Obstacle.Message == ""
		}
		if err != nil || ended == dml.Yielded {
			return ended, err
		}
		// A cycle of rows that contains the group is deleted in the last transaction.
		held = held || ended == dml.Blocked && !cycle
	}
	if held {
		return dml.Blocked, nil
	}
	return r.finish(ctx, g, cycle)
}

// partName returns the display name of a part.
func partName(p int) string {
	switch p {
	case projectsPart:
		return "projects"
	case subgroupsPart:
		return "sub-groups"
	case membershipsPart:
		return "memberships and shares"
	default:
		return "rows"
	}
}

// beginPart records the step that the run begins.
func (r *run) beginPart(ctx context.Context, p int, group dml.ID) error {
	r.report(ctx, func(stats *Stats) bool {
		stats.Step = fmt.Sprintf("%s of group %s", partName(p), group)
		return true
	})
	return r.record(ctx)
}

// handle passes an error to HandleError, with the table of groups as the failed table.
func (r *run) handle(err error) (dml.Result, error) {
	return r.HandleError(err, r.engine.Plan.groups.table.Label())
}

// clearPart deletes the rows that refer to a group by the keys of one part. It reports
// whether the group is in a cycle of rows.
//
// clearPart repeats the deletion until the version of the group's row is unchanged,
// because it finds no rows below an outdated version. The application may change the row
// at any time, and triggers on rows below may change the row with each batch.
func (r *run) clearPart(ctx context.Context, g dml.ID, p int) (_ dml.Result, cycle bool, _ error) {
	for changed := 0; changed <= mostRefills; {
		w, err := r.groupWindow(ctx, g)
		if err != nil {
			result, err := r.handle(err)
			return result, false, err
		}
		if w == nil {
			return dml.Finished, false, nil
		}
		refs := slices.DeleteFunc(w.Table.RefsOf(w.Leaf), func(f *ref) bool { return f.Part != p })
		before := r.Changes
		ended, err := r.Clear(ctx, w, refs)
		if w.Refilled {
			r.refilled[g] = mostRefills + 1
		}
		if err != nil || ended != dml.Finished || len(refs) == 0 {
			return ended, len(w.Cycle) > 0, err
		}
		same, err := dml.Select(ctx, r.Read, pgx.RowTo[bool], dml.UnchangedStatement(w.Leaf), w.Rows.Args()...)
		switch {
		case err != nil:
			result, err := r.handle(err)
			return result, false, err
		case same[0]:
			return dml.Finished, false, nil
		case r.Changes > before:
			changed = 0
		default:
			changed++
		}
	}
	r.Obstacle = batch.Fault{
		Table:   r.engine.Plan.groups.table.Label(),
		Message: fmt.Sprintf("other sessions keep changing group %s", g),
	}
	return dml.Blocked, false, nil
}

func (r *run) groupWindow(ctx context.Context, g dml.ID) (*window, error) {
	return r.engine.Plan.groupWindow(ctx, r.Read, g, r.lineage)
}

// groupWindow returns the row of a group. It returns nil if the group or a group above it
// was deleted, or was moved out of the lineage.
func (p *Plan) groupWindow(ctx context.Context, read dml.Reader, g dml.ID, lineage []dml.ID) (*window, error) {
	t := p.groups.table
	var leaf uint32
	var one dml.Row
	sql := fmt.Sprintf("SELECT target.tableoid, target.ctid, target.xmin FROM %s AS target WHERE %s OPERATOR(pg_catalog.=) $1 AND %s",
		p.table(), p.id("target"), p.lineageHolds(2))
	found, err := dml.Select(ctx, read, func(row pgx.CollectableRow) (struct{}, error) {
		return struct{}{}, row.Scan(&leaf, &one.At, &one.Version)
	}, sql, p.key.Argument(g), dml.KeysOf(p.key.Integer, lineage...))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	w, known := t.Window(leaf, rows{one})
	if !known {
		return nil, fmt.Errorf("find group %s: its partition was created after the run began", g)
	}
	return w, nil
}

// subgroups destroys the groups below a group, each under its own lease. It skips a
// sub-group that another run is destroying.
func (r *run) subgroups(ctx context.Context, g dml.ID) (dml.Result, error) {
	p, ended := r.engine.Plan, dml.Finished
	if p.groups.Parent == "" && !p.gitlab() {
		return ended, nil
	}
	sql := statement(r.Session.Names, "subgroup", "{groups}", p.table(), "{lineage}", p.lineageHolds(3),
		"{id}", p.id("above"), "{below}", p.id("below"), "{parent}", p.parent("below"))
	var last any // nil becomes NULL, with which the query returns the first group.
	for {
		if r.Paused(ctx) {
			return dml.Yielded, nil
		}
		next, err := dml.Select(ctx, r.Read, pgx.RowTo[dml.ID], sql, p.key.Argument(g), last,
			dml.KeysOf(p.key.Integer, r.lineage...))
		switch {
		case err != nil:
			return r.handle(err)
		case len(next) == 0:
			return ended, nil
		}
		last = p.key.Argument(next[0])
		if slices.Contains(r.lineage, next[0]) {
			r.Obstacle = batch.Fault{
				Table:   p.groups.table.Label(),
				Message: fmt.Sprintf("group %s is its own ancestor", next[0]),
			}
			ended = dml.Blocked
			continue
		}
		result, err := r.underLease(ctx, next[0])
		if err != nil || result == dml.Yielded {
			return result, err
		}
		if result == dml.Blocked {
			ended = dml.Blocked
		}
	}
}

// underLease destroys a sub-group under its own lease.
func (r *run) underLease(ctx context.Context, g dml.ID) (_ dml.Result, err error) {
	outer := r.Session.Fence
	granted, err := r.engine.Leases.Acquire(ctx, LeaseKey(g), LeaseTTL, r.engine.Database)
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		r.heldSubgroup, r.waited = held, true
		return dml.Blocked, nil
	}
	if err != nil {
		return dml.Blocked, err
	}
	r.leases, r.Session.Fence = append(r.leases, granted), granted
	defer func() {
		r.leases, r.Session.Fence = r.leases[:len(r.leases)-1], outer
		err = errors.Join(err, granted.Release(context.WithoutCancel(ctx)))
	}()
	return r.destroyGroup(ctx, g)
}

// finish deletes a group that no rows refer to. The same transaction deletes its schedule
// and its lease and writes the event. If the group is in a cycle of rows, it also deletes
// these rows.
func (r *run) finish(ctx context.Context, g dml.ID, inCycle bool) (dml.Result, error) {
	var cycle *drain.Cycle
	if inCycle {
		w, err := r.groupWindow(ctx, g)
		if err == nil && w != nil {
			cycle, err = r.Cycle(ctx, w)
		}
		if err != nil {
			return r.handle(err)
		}
	}
	p := r.engine.Plan
	t := p.groups.table
	refs := slices.DeleteFunc(slices.Clone(t.Refs), func(f *ref) bool { return f.Part == lastPart })
	var deleted bool
	var live []bool
	statements := []batch.Statement{p.lock(g), {
		SQL:  p.finishStatement(r.Session.Names, refs),
		Args: []any{p.key.Argument(g), dml.KeysOf(p.key.Integer, r.lineage...), r.group(), cycle != nil, LeaseKey(g)},
		Scan: batch.One(&deleted, &live),
	}}
	if cycle != nil {
		statements = append(statements[:1], cycle.Around(statements[1])...)
	}
	judge := r.Watch(ctx, r.ShortWaits())
	err := r.alter(ctx, r.ShortWaits(), 1, statements...)
	f := judge(err)
	if err != nil && cycle != nil {
		if err = cycle.Failed(err); err == nil {
			return dml.Blocked, nil
		}
		f = batch.Judge(err)
	}
	if err != nil {
		return r.HandleFault(f, err, t.Label())
	}
	if deleted {
		r.Changes++
		r.Owner.OnDeleted(t, 1, 0)
		if cycle != nil {
			cycle.CountDeleted()
		}
	}
	r.batchDone(ctx)
	switch {
	case deleted:
		return dml.Finished, nil
	case len(live) == 0:
		// The group does not exist, or it was moved away.
		if err := r.forget(ctx, g); err != nil {
			return r.handle(err)
		}
		return dml.Finished, nil
	}
	if at := slices.Index(live, true); at >= 0 {
		if r.Obstacle.Message == "" {
			r.Obstacle = batch.Fault{
				Table:   refs[at].Table.Label(),
				Message: "rows still refer to the group: " + refs[at].Label(),
			}
		}
		if r.refilled[g]++; r.refilled[g] > mostRefills {
			r.CountFailure(drain.RefilledFault(refs[at].Table.Label()))
		}
	}
	return dml.Blocked, nil
}

// futileFault returns the failure of a run that ended without having deleted a row.
func (r *run) futileFault() batch.Fault {
	f := batch.Fault{Message: fmt.Sprintf("no row was deleted in %s, at the step %s",
		r.until.Sub(r.began).Round(time.Second), r.stats.Step)}
	if r.Lowest != nil {
		f.Table = r.Lowest.Label()
		f.Message += fmt.Sprintf(": the run followed references %d levels deep, and the last level still has rows below it",
			r.Deepest)
	}
	return f
}

// recordFailure counts an attempt and records the reason.
func (r *run) recordFailure(ctx context.Context) error {
	f := r.Obstacle
	if r.Fault != nil {
		f = *r.Fault
	}
	if f.Message == "" && r.heldSubgroup != nil {
		f.Message = r.heldSubgroup.Error()
	}
	switch {
	case f.Message != "":
	case r.ended():
		f = r.futileFault()
	default:
		f.Message = "rows remain although no rows refer to them"
	}
	r.stats.Outcome, r.stats.Reason = Stuck, f.Text()
	return r.sendOwn(ctx, batch.Statement{SQL: statement(r.Session.Names, "blame"), Args: []any{r.group(), f.Text()}})
}

// moveCheckEvery is the number of batches between checks for moved groups and projects. A
// group or project that is moved loses at most the rows of that number of batches.
const moveCheckEvery = 8

// lineageHolds returns the condition that each group in an array is the parent of the
// next one. The array is the parameter with the given number. If the condition is false,
// a group was moved away and must be kept with everything below it.
func (p *Plan) lineageHolds(parameter int) string {
	return fmt.Sprintf(`NOT EXISTS (
	SELECT FROM unnest((%[2]s)[:pg_catalog.cardinality(%[2]s) OPERATOR(pg_catalog.-) 1], (%[2]s)[2:]) AS link (above, below)
	WHERE NOT EXISTS (SELECT FROM %[1]s AS linked WHERE %[3]s OPERATOR(pg_catalog.=) link.below AND %[4]s OPERATOR(pg_catalog.=) link.above)
)`, p.table(), p.key.Parameter(parameter), p.id("linked"), p.parent("linked"))
}

// movedAway reports whether a current group or project was moved away. It checks this on
// every moveCheckEvery-th call only. It treats a project that was changed in another way
// as moved, because a restart of the deletion costs little.
func (r *run) movedAway(ctx context.Context) bool {
	if r.moveChecks++; r.moved || r.moveChecks%moveCheckEvery != 0 {
		return r.moved
	}
	if len(r.lineage) > 1 {
		r.moved = !r.holds(ctx, "SELECT "+r.engine.Plan.lineageHolds(1),
			dml.KeysOf(r.engine.Plan.key.Integer, r.lineage...))
	}
	for _, on := range r.Stack {
		if on.Table == r.engine.Plan.projects && !r.moved {
			r.moved = !r.holds(ctx, dml.UnchangedStatement(on.Leaf), on.Rows.Args()...)
		}
	}
	return r.moved
}

// holds returns the boolean result of a statement, or true if the statement fails. If the
// error persists, a batch returns it.
func (r *run) holds(ctx context.Context, sql string, args ...any) bool {
	found, err := dml.Select(ctx, r.Read, pgx.RowTo[bool], sql, args...)
	return err != nil || found[0]
}
