package loosefk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/fault"
)

// slice gives a chunk one statement per task and settles it where that was enough.
func (r *run) slice(ctx context.Context, c *chunk) (rest, error) {
	c.begun = true
	tasks := c.tasks
	c.tasks = nil
	for i, t := range tasks {
		others := tasks[i+1:]
		r.pace.Await(ctx)
		r.rest(ctx, t, c.how)
		if r.ended() {
			c.tasks = append(c.tasks, tasks[i:]...)
			return later(c), nil
		}
		if known, open := r.breaker.open(t, c.how); open {
			c.fail(known)
			continue
		}
		// The pass's last statement takes the removal along, so that a tombstone goes in the transaction of
		// its last batch.
		last := len(others) == 0 && len(c.tasks) == 0 && c.failed == nil && !c.alone && !c.elsewhere && r.form(t, c.how) != piecewise
		more, err := r.step(ctx, c, &t, last)
		switch {
		case err != nil:
			t.backOff = r.backOff(t, c.how, err)
			remedy, fatal := r.remedy(c, t, err)
			if fatal != nil {
				return nothing(), fatal
			}
			if again, wanted := remedy.again(t); wanted {
				c.tasks = append(c.tasks, again)
			}
			if remedy == split || remedy == isolate {
				c.tasks = append(c.tasks, others...)
				return divided(c, remedy), nil
			}
		case c.done():
			return nothing(), nil
		case more:
			c.tasks = append(c.tasks, t)
			if len(c.tombstones) > 1 {
				// One of the parents has more children than fit: let the others pass.
				c.tasks = append(c.tasks, others...)
				return divided(c, split), nil
			}
		case last:
			return r.wait(ctx, c)
		}
	}
	if len(c.tasks) > 0 {
		return later(c), nil
	}
	return r.settle(ctx, c)
}

// again is the task as it is tried next, if it is.
func (m remedy) again(t task) (task, bool) {
	if m == retry {
		t.beaten++
	}
	return t, m != giveUp
}

// errRemoval marks a step that failed in the removal of tombstones and not in its own statement.
var errRemoval = errors.New("remove tombstones")

// remedy decides what becomes of a task that failed. The error is the one that ends the run.
func (r *run) remedy(c *chunk, t task, err error) (remedy, error) {
	f := judge(err, t.reference.Child.Label())
	switch {
	case f.Verdict == fault.Fatal:
		return giveUp, err
	case f.Verdict == fault.Unavailable:
		r.stats.fail(f)
		c.fail(f)
		return giveUp, nil
	case errors.Is(err, errRemoval):
		// It took the cleaned rows back with it: do the two apart.
		c.alone = true
		return retry, nil
	}
	if m, wanted := r.adapt(c, t, r.form(t, c.how), f); wanted {
		return m, nil
	}
	r.stats.fail(f)
	m := r.breaker.failed(t, c.how, f, len(c.tombstones))
	if m == giveUp {
		c.fail(f)
	}
	return m, nil
}

// step runs one task's statement: behind one that waits for locks in the waiting pass, and together with the
// removal of finished tombstones where remove is set. It reports whether there may be more rows at once.
func (r *run) step(ctx context.Context, c *chunk, t *task, remove bool) (more bool, err error) {
	form := r.form(*t, c.how)
	limit := r.budget.rows(t.reference, r.breaker.limit(*t, r.usual(*t, form)))
	if form == piecewise && t.walk.underWay() && t.walk.blocks(limit) == 0 {
		t.walk.stop()
	}
	if form == piecewise && len(t.window) == 0 && !t.walk.underWay() {
		if err := r.look(ctx, c, t, limit); err != nil || len(t.window) == 0 && !t.walk.underWay() {
			return false, err
		}
	}
	statements := r.statements(c, *t, form, limit)
	cleaning := len(statements) - 1
	clean := &statements[cleaning]
	var counted int64
	if t.reference.Definition.CleanerClass != "" {
		clean.Scan = func(rows pgx.Rows) (err error) {
			counted, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
			return err
		}
	}
	countsItself := clean.Scan != nil
	var gone []int64
	removing := len(statements)
	if remove {
		if form == direct {
			statements = append(statements, batch.Statement{SQL: bitmapOff})
			removing++
		}
		statements = append(statements, r.removal(c, c.tombstones, c.exactWith(*t, form), &gone))
	}
	unwatch := r.watch(ctx, t.reference.Database, form)
	began := time.Now()
	affected, err := r.in(ctx, t.reference.Database, r.limits(*t, form), statements...)
	took := time.Since(began)
	unwatch()
	if failed, ok := errors.AsType[*batch.StatementError](err); ok && remove && failed.Index == removing {
		return false, fmt.Errorf("%w: %w", errRemoval, err)
	}
	if err != nil {
		return false, err
	}
	rows := affected[cleaning]
	if countsItself {
		rows = counted
	}
	r.breaker.succeeded(*t, r.usual(*t, form))
	delete(r.backOffs, t.place())
	r.stats.clean(t.reference, rows)
	c.took(*t, form)
	c.cleaned += rows
	switch form {
	case direct:
	case piecewise:
		if t.walk.underWay() {
			t.walk.advance(t.walk.blocks(limit), rows)
		} else {
			t.window = t.window[min(limit, len(t.window)):]
		}
		more = true // The look that finds nothing ends it.
	case skipping, waiting:
		more = rows >= int64(limit)
	}
	if form == skipping || form == direct {
		t.reference.learn(len(c.tombstones), rows, more)
	}
	r.remove(c, gone)
	if r.engine.Progress != nil {
		r.engine.Progress(ctx, r.stats)
	}
	r.steer(ctx, *t, form, rows, took)
	return more, nil
}

// statements are those of one step; the last one cleans.
func (r *run) statements(c *chunk, t task, form pass, limit int) []batch.Statement {
	keys, names := keysOf(c.parent, c.tombstones), r.session(t.reference).Names
	var all []batch.Statement
	add := func(sql string, args []any) { all = append(all, batch.Statement{SQL: sql, Args: args}) }
	switch form {
	case direct:
		add(bitmapOn, nil)
		add(c.parent.directStatement(names, t.reference, t.leaf, keys))
	case piecewise:
		if t.walk.underWay() {
			add(c.parent.stretchStatement(names, t.reference, t.leaf, keys, t.walk.next, t.walk.blocks(limit)))
			break
		}
		add(c.parent.pieceStatement(names, t.reference, t.leaf, keys, t.window[:min(limit, len(t.window))]))
	case waiting:
		add(c.parent.waitStatement(t.reference, t.leaf, keys, limit))
		add(c.parent.cleanStatement(names, t.reference, t.leaf, keys, limit))
	case skipping:
		add(c.parent.cleanStatement(names, t.reference, t.leaf, keys, limit))
	}
	return all
}

// look reads the next window of a task. Where the last one cleaned nothing, something keeps the rows there,
// and the next one would clean nothing either: the waiting pass finds out.
func (r *run) look(ctx context.Context, c *chunk, t *task, limit int) error {
	if t.looked && c.cleaned == t.cleanedBefore {
		return nil
	}
	wanted := t.walk.looksFor(!t.looked)
	t.looked, t.cleanedBefore = true, c.cleaned
	sql, args := c.parent.windowStatement(t.reference, t.leaf, keysOf(c.parent, c.tombstones), wanted)
	began := time.Now()
	_, err := r.in(ctx, t.reference.Database, r.engine.Session.Limits, batch.Statement{SQL: sql, Args: args, Scan: func(rows pgx.Rows) (err error) {
		t.window, err = pgx.CollectRows(rows, pgx.RowTo[pgtype.TID])
		return err
	}})
	t.walk.looked(time.Since(began), r.engine.Adaptive.Target)
	if err == nil && t.walk.begin(t.window, limit) {
		t.window = nil
	}
	return err
}

// removal is the statement that removes the finished ones among tombstones of the chunk, without a look at the children
// of the exact references.
func (r *run) removal(c *chunk, finished []tombstone, exact []*Reference, gone *[]int64) batch.Statement {
	sql, args := c.parent.removeStatement(r.engine.Session.Names, r.engine.Database, finished, c.verify, c.parent.marks(exact))
	return batch.Statement{SQL: sql, Args: args, Scan: func(rows pgx.Rows) (err error) {
		*gone, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	}}
}

func (r *run) remove(c *chunk, gone []int64) {
	r.stats.count(c.parent, ParentCounts{Processed: int64(len(gone))})
	c.tombstones = slices.DeleteFunc(c.tombstones, func(t tombstone) bool { return slices.Contains(gone, t.id) })
}

// settle removes finished tombstones in a transaction of its own, where no task could take that along. What
// is left is blamed where the chunk has failed, and else waited for.
func (r *run) settle(ctx context.Context, c *chunk) (rest, error) {
	// A table that cannot be read would fail the removal as well, for all.
	if c.failed == nil || c.failed.Verdict != fault.Hopeless && c.failed.Verdict != fault.Unavailable {
		var gone []int64
		finished, err := r.finished(ctx, c)
		if err == nil && len(finished) > 0 {
			_, err = r.engine.Session.Run(ctx, r.removal(c, finished, c.exact, &gone))
		}
		if err != nil {
			f := judge(err, c.parent.Label())
			switch {
			case f.Verdict == fault.Fatal:
				return nothing(), fmt.Errorf("%w: %w", errRemoval, err)
			case f.Verdict != fault.Hopeless && f.Verdict != fault.Unavailable && len(c.tombstones) > 1:
				return divided(c, split), nil
			}
			r.stats.fail(f)
			c.fail(f)
		}
		r.remove(c, gone)
	}
	switch {
	case c.done():
		return nothing(), nil
	case c.failed != nil:
		return nothing(), r.blame(ctx, c.parent, c.tombstones, *c.failed)
	default:
		return r.wait(ctx, c)
	}
}

// wait plans the waiting pass over what the skipping pass had to leave: children that others had locked, or
// that moved while a statement ran.
func (r *run) wait(ctx context.Context, c *chunk) (rest, error) {
	if c.how == waiting && c.cleaned == 0 {
		c.idle++
	} else {
		c.idle = 0
	}
	c.passes++
	// Nobody can hold that many children up one after another; a trigger that undoes the change can.
	const most = 20
	if c.idle >= patience || c.passes > most {
		f := fault.Fault{
			Table:   c.parent.Label(),
			Message: "children remain that nobody has locked: a trigger or rule of a child table keeps them or puts them back",
		}
		r.stats.fail(f)
		return nothing(), r.blame(ctx, c.parent, c.tombstones, f)
	}
	c.how = waiting
	c.exact = nil
	c.verify = r.probe(ctx, c.parent, keysOf(c.parent, c.tombstones))
	c.plan(c.verify)
	return later(c), nil
}

// blame counts an attempt for tombstones and records the reason. Those that wait for another database are put off for a
// while, which is no attempt.
func (r *run) blame(ctx context.Context, parent *Parent, tombstones []tombstone, f fault.Fault) error {
	for _, l := range r.lanes {
		if l.parent == parent {
			l.left = append(l.left, tombstones...)
		}
	}
	ids, times := places(tombstones)
	var putOff, blamed int64
	sql, how := blameSQL, any(f.Verdict == fault.Unfinished)
	if f.Verdict == fault.Unavailable {
		sql, how = awaitSQL, r.putOffFor(parent).Seconds()
	}
	_, err := r.engine.Session.Run(ctx, batch.Statement{
		SQL: r.engine.Session.Names.Render(sql), Args: []any{parent.Recorded, ids, times, f.Text(), how},
		Scan: func(rows pgx.Rows) (err error) {
			_, err = pgx.ForEachRow(rows, []any{&putOff, &blamed}, func() error { return nil })
			return err
		},
	})
	if err != nil {
		return fmt.Errorf("record failed attempts: %w", err)
	}
	r.stats.count(parent, ParentCounts{Rescheduled: putOff, Incremented: blamed - putOff})
	return nil
}
