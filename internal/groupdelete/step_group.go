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

// mostRounds is how often a group may have been changed, or have got new rows, since it
// was cleared.
const mostRounds = 20

// destroyGroup takes down a group, as long as it is below the one that the run is about:
// its projects, its sub-groups, memberships and shares, what else refers to it, itself.
func (r *run) destroyGroup(ctx context.Context, g dml.ID) (dml.Result, error) {
	if r.rounds[g] > mostRounds {
		return dml.Blocked, nil
	}
	r.line = append(r.line, g)
	defer func() { r.line = r.line[:len(r.line)-1] }()
	held, circle := false, false
	for part := projectsPart; part <= restPart; part++ {
		if held && part == membershipsPart {
			// As long as it has projects or sub-groups the group keeps its members.
			return dml.Blocked, nil
		}
		if err := r.at(ctx, part, g); err != nil {
			return r.handle(err)
		}
		var ended dml.Result
		var err error
		if part == subgroupsPart {
			ended, err = r.subgroups(ctx, g)
		} else {
			ended, circle, err = r.clearPart(ctx, g, part)
			circle = circle && r.Waits && r.Fault == nil && r.Obstacle.Message == ""
		}
		if err != nil || ended == dml.Yielded {
			return ended, err
		}
		// A circle of rows that the group is in is deleted in the last transaction.
		held = held || ended == dml.Blocked && !circle
	}
	if held {
		return dml.Blocked, nil
	}
	return r.finish(ctx, g, circle)
}

// partName names a part for people.
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

// at records the step that the run begins.
func (r *run) at(ctx context.Context, p int, group dml.ID) error {
	r.report(ctx, func(stats *Stats) bool {
		stats.Step = fmt.Sprintf("%s of group %s", partName(p), group)
		return true
	})
	return r.record(ctx, r.Tree)
}

// handle is the drain's Handle for statements on Sexton's own tables and on single
// groups.
func (r *run) handle(err error) (dml.Result, error) { return r.Handle(err, "groups") }

// clearPart deletes what hangs below a group by the keys of one part, and reports whether
// the group is in a circle of rows. A changed row of the group has nothing below it, so
// the row is read again until it stays the same. An application may change it at any
// time, and triggers on rows below it may change it with each batch.
func (r *run) clearPart(ctx context.Context, g dml.ID, p int) (_ dml.Result, circle bool, _ error) {
	for changed := 0; changed <= mostRounds; {
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
		if p == projectsPart {
			if err := r.deleteProjects(ctx, w, refs); err != nil {
				return dml.Blocked, false, err
			}
		}
		ended, err := r.Clear(ctx, w, refs)
		if w.Refilled {
			r.rounds[g] = mostRounds + 1
		}
		if err != nil || ended != dml.Finished || len(refs) == 0 {
			return ended, len(w.Circle) > 0, err
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
	r.Obstacle = batch.Fault{Table: "groups", Message: fmt.Sprintf("another session changes group %s all the time", g)}
	return dml.Blocked, false, nil
}

func (r *run) groupWindow(ctx context.Context, g dml.ID) (*window, error) {
	return r.engine.Plan.groupWindow(ctx, r.Read, g, r.line)
}

// groupWindow is the row of a group below others, or nil if it is not there any more.
func (p *Plan) groupWindow(ctx context.Context, read dml.Reader, g dml.ID, line []dml.ID) (*window, error) {
	t := p.groups.table
	var leaf uint32
	var one dml.Row
	sql := fmt.Sprintf("SELECT target.tableoid, target.ctid, target.xmin FROM %s AS target WHERE %s OPERATOR(pg_catalog.=) $1 AND %s",
		p.table(), p.id("target"), p.lineHolds(2))
	found, err := dml.Select(ctx, read, func(row pgx.CollectableRow) (struct{}, error) {
		return struct{}{}, row.Scan(&leaf, &one.At, &one.Version)
	}, sql, p.parameter(g), dml.KeysOf(p.key.Integer, line...))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	w, known := t.Window(leaf, rows{one})
	if !known {
		return nil, fmt.Errorf("find group %s: its partition came after the run began", g)
	}
	return w, nil
}

// subgroups takes down the groups below one, each under its own lease. One that another
// run is at is passed over.
func (r *run) subgroups(ctx context.Context, g dml.ID) (dml.Result, error) {
	p, ended := r.engine.Plan, dml.Finished
	if p.groups.Parent == "" && !p.gitlab() {
		return ended, nil
	}
	sql := statement(r.Session.Names, "subgroup", "{groups}", p.table(), "{line}", p.lineHolds(3),
		"{id}", p.id("above"), "{below}", p.id("below"), "{parent}", p.parent("below"))
	var last any // All IDs are greater than NULL.
	for {
		if r.Paused(ctx) {
			return dml.Yielded, nil
		}
		next, err := dml.Select(ctx, r.Read, pgx.RowTo[dml.ID], sql, p.parameter(g), last,
			dml.KeysOf(p.key.Integer, r.line...))
		switch {
		case err != nil:
			return r.handle(err)
		case len(next) == 0:
			return ended, nil
		}
		last = p.parameter(next[0])
		if slices.Contains(r.line, next[0]) {
			r.Obstacle = batch.Fault{Table: "groups", Message: fmt.Sprintf("group %s is its own ancestor", next[0])}
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
		r.busy = held
		r.excuse()
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

// finish deletes a group below which nothing is left, with everything that belongs to
// that moment in one transaction: its row in the schedules, its lease, and the event. If
// the group is in a circle of rows, these are deleted with it.
func (r *run) finish(ctx context.Context, g dml.ID, inCircle bool) (dml.Result, error) {
	var circle *drain.Circle
	if inCircle {
		w, err := r.groupWindow(ctx, g)
		if err == nil && w != nil {
			circle, err = r.Circle(ctx, w)
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
		Args: []any{p.parameter(g), dml.KeysOf(p.key.Integer, r.line...), r.group(), circle != nil, LeaseKey(g)},
		Scan: batch.One(&deleted, &live),
	}}
	if circle != nil {
		statements = append(statements[:1], circle.Around(statements[1])...)
	}
	judge := r.Watch(ctx, r.ShortWaits())
	err := r.alter(ctx, r.ShortWaits(), 1, statements...)
	f := judge(err)
	if err != nil && circle != nil {
		if err = circle.Failed(err); err == nil {
			return dml.Blocked, nil
		}
		f = batch.Judge(err)
	}
	if err != nil {
		return r.HandleFault(f, err, "groups")
	}
	if deleted {
		r.Changes++
		r.Owner.OnDeleted(t, 1, 0)
		if circle != nil {
			circle.CountDeleted()
		}
	}
	r.batchDone(ctx)
	switch {
	case deleted:
		return dml.Finished, nil
	case len(live) == 0:
		// There is no such group, or it belongs to another one.
		if err := r.forget(ctx, g); err != nil {
			return r.handle(err)
		}
		return dml.Finished, nil
	}
	if at := slices.Index(live, true); at >= 0 {
		if r.Obstacle.Message == "" {
			r.Obstacle = batch.Fault{
				Table:   refs[at].Table.Label(),
				Message: "rows refer to the group still: " + refs[at].Label(),
			}
		}
		if r.rounds[g]++; r.rounds[g] > mostRounds {
			r.Blame(drain.ComesBack(refs[at].Table.Label()))
		}
	}
	return dml.Blocked, nil
}

// overdue says how far a run came that could delete nothing in all of its time.
func (r *run) overdue() batch.Fault {
	f := batch.Fault{Message: fmt.Sprintf("nothing could be deleted in %s, at %s",
		r.until.Sub(r.began).Round(time.Second), r.stats.Step)}
	if r.Lowest != nil {
		f.Table = r.Lowest.Label()
		f.Message += fmt.Sprintf(": %d levels of rows were passed, and the last ones have rows below them still",
			r.Deepest)
	}
	return f
}

// recordFailure counts an attempt, records the reason and leaves the group to the next
// one.
func (r *run) recordFailure(ctx context.Context) error {
	f := r.Obstacle
	if r.Fault != nil {
		f = *r.Fault
	}
	if f.Message == "" && r.busy != nil {
		f.Message = r.busy.Error()
	}
	switch {
	case f.Message != "":
	case r.ended():
		f = r.overdue()
	default:
		f.Message = "rows are left although nothing refers to them"
	}
	r.stats.Outcome, r.stats.Reason = Stuck, f.Text()
	return r.sendOwn(ctx, batch.Statement{SQL: statement(r.Session.Names, "blame"), Args: []any{r.group(), f.Text()}})
}

// escapeEvery is after how many batches a run looks whether what it has in hand still
// belongs to the group: what is moved away loses as many at most.
const escapeEvery = 8

// lineHolds is the condition that each of the groups in an array (a parameter) is the
// parent of the next one. One that was moved away has escaped with all that is below it,
// and so has what is in hand further down.
func (p *Plan) lineHolds(parameter int) string {
	return fmt.Sprintf(`NOT EXISTS (
	SELECT FROM unnest((%[2]s)[:pg_catalog.cardinality(%[2]s) OPERATOR(pg_catalog.-) 1], (%[2]s)[2:]) AS link (above, below)
	WHERE NOT EXISTS (SELECT FROM %[1]s AS linked WHERE %[3]s OPERATOR(pg_catalog.=) link.below AND %[4]s OPERATOR(pg_catalog.=) link.above)
)`, p.table(), p.key.Parameter(parameter), p.id("linked"), p.parent("linked"))
}

// escaped looks, now and then, whether a group or a project in hand was moved away. Rows
// that were changed in some other way are taken for moved: to begin again costs little.
func (r *run) escaped(ctx context.Context, tree *drain.Tree, asked *int, every int) bool {
	r.mu.Lock()
	moved := r.moved
	r.mu.Unlock()
	if *asked++; moved || *asked%every != 0 {
		return moved
	}
	if len(r.line) > 1 {
		moved = !holds(ctx, tree, "SELECT "+r.engine.Plan.lineHolds(1),
			dml.KeysOf(r.engine.Plan.key.Integer, r.line...))
	}
	for _, on := range tree.Stack {
		if on.Table == r.engine.Plan.projects && !moved {
			moved = !holds(ctx, tree, dml.UnchangedStatement(on.Leaf), on.Rows.Args()...)
		}
	}
	if moved {
		r.mu.Lock()
		r.moved = true
		r.mu.Unlock()
	}
	return moved
}

// holds runs a statement that returns a boolean. One that fails tells nothing; should
// that last, others fail as well.
func holds(ctx context.Context, tree *drain.Tree, sql string, args ...any) bool {
	found, err := dml.Select(ctx, tree.Read, pgx.RowTo[bool], sql, args...)
	return err != nil || found[0]
}
