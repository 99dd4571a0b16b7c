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
	"sexton/internal/drain"
)

// runTasks runs one statement per task of a chunk, and settles the chunk if that was enough.
func (r *run) runTasks(ctx context.Context, c *chunk) (rest, error) {
	c.begun = true
	tasks := c.tasks
	c.tasks = nil
	smaller := false
	if c.blocked != nil && c.how == waiting {
		c.how = skipping // What has become free goes first.
	}
	c.blocked, c.yields = nil, false
	began := time.Now()
	tasks = r.abreast(ctx, c, tasks)
	for i, t := range tasks {
		if i > 0 && r.contended && time.Since(began) > round/2 {
			// A chunk of many slow tables: the other queues have their turn first, and then the tables that have had none.
			c.tasks = append(slices.Clone(tasks[i:]), c.tasks...)
			r.settleWait(c)
			return later(c), nil
		}
		others := tasks[i+1:]
		if b := r.obstacle(t, c.how); b != nil {
			c.tasks = append(c.tasks, t)
			c.blocked = b
			continue
		}
		r.pace.Await(ctx)
		if r.ended() {
			c.tasks = append(c.tasks, tasks[i:]...)
			return later(c), nil
		}
		if known, open := r.breaker.open(t, c.how); open {
			c.fail(known, t.reference)
			continue
		}
		// The pass's last statement takes the removal along, so that a tombstone goes in the transaction of
		// its last batch.
		last := len(others) == 0 && len(c.tasks) == 0 && c.failed == nil && !c.alone && !c.remote && r.form(t, c.how) != piecewise
		more, err := r.runTask(ctx, c, &t, last)
		switch {
		case err != nil:
			next, fatal := r.strategy(ctx, c, &t, err)
			if fatal != nil {
				return nothing(), fatal
			}
			if next != giveUp {
				c.tasks = append(c.tasks, t)
				smaller = true
			}
			if next == split || next == isolate {
				c.tasks = append(c.tasks, others...)
				return divided(c, next), nil
			}
		case c.done():
			return nothing(), nil
		case more:
			c.tasks = append(c.tasks, t)
			if len(c.tombstones) > 1 && r.form(t, c.how) != piecewise {
				// One of the parents has more children than fit: let the others pass.
				c.tasks = append(c.tasks, others...)
				return divided(c, split), nil
			}
		case last:
			return r.wait(ctx, c)
		}
	}
	r.settleWait(c)
	switch {
	case smaller && c.blocked == nil:
		// What was tried was too much, and the next one has not been told yet: nothing would move before all had tried.
		return rest{next: []*chunk{c}}, nil
	case len(c.tasks) > 0:
		return later(c), nil
	}
	return r.settle(ctx, c)
}

// errRemoval marks a task that failed in the removal of tombstones and not in its own statement.
var errRemoval = errors.New("remove tombstones")

// strategy decides what becomes of a task that failed. The error is the one that ends the run.
func (r *run) strategy(ctx context.Context, c *chunk, t *task, err error) (nextTry, error) {
	f := r.judge(ctx, c.parent, err, t.reference.Child.Label())
	if f.Lock() {
		r.pace.Locked()
	}
	if f.SQLState == rowTooLarge && len(c.tombstones) == 1 {
		f.Verdict = batch.Unavailable // It waits for another configuration.
	}
	switch {
	case f.SQLState == otherColumns:
		return giveUp, ErrChanged
	case f.SQLState == rowsApart && t.reference.Keep != nil && !t.reference.Keep.Apart:
		t.reference.Keep.Apart = true
		return retry, nil
	case f.SQLState == notWithRules && r.ruled(ctx, t):
		t.reference.Keep.Apart, t.reference.Keep.Ruled = true, true
		return retry, nil
	case f.Verdict == batch.Fatal:
		return r.cut(ctx, c, t, f, err)
	case f.Verdict == batch.Unavailable:
		r.stats.fail(f)
		c.fail(f, t.reference)
		return giveUp, nil
	case errors.Is(err, errRemoval):
		if f.Lock() {
			r.findLocked(ctx, c.parent)
		}
		// It took the cleaned rows back with it: do the two apart.
		c.alone = true
		return retry, nil
	}
	if f.Lock() && r.form(*t, c.how) == piecewise && !t.reference.Index {
		r.locksOnTheWay(ctx, c, t, f)
		return retry, nil
	}
	if m, wanted := r.adapt(c, *t, r.form(*t, c.how), f); wanted {
		return m, nil
	}
	if f.Lock() {
		r.inTheWay(ctx, c, *t, f)
		return retry, nil
	}
	long := t.slow() && len(c.tombstones) == 1
	m := r.breaker.failed(*t, c.how, f, len(c.tombstones))
	if m == shrink && long {
		r.waitWith(c, c.again(), "rows of "+f.Table+" take long: "+f.Message, "")
		c.yields = true
	}
	if m != shrink || !r.engine.Adaptive.on() {
		r.stats.fail(f)
	}
	if m == giveUp {
		c.fail(f, t.reference)
	}
	return m, nil
}

// cut decides what becomes of a task whose connection broke. A parent that stands alone is tried once more, when nothing else is left: its statement
// may have been cut by chance.
func (r *run) cut(ctx context.Context, c *chunk, t *task, f batch.Fault, err error) (nextTry, error) {
	if !r.sessions.Survives(ctx) {
		return giveUp, err
	}
	f.Message = batch.LostConnection + f.Message
	if len(c.tombstones) == 1 && !c.cut {
		c.cut, c.yields = true, true
		r.waitWith(c, c.again(), "rows of "+f.Table+": "+f.Message, "")
		return retry, nil
	}
	m := r.breaker.failed(*t, c.how, f, len(c.tombstones))
	if f.Verdict = batch.Row; m == giveUp {
		r.stats.fail(f)
		c.fail(f, t.reference)
	}
	return m, nil
}

// runTask runs one task's statement, perhaps in parts: behind one that waits for locks in the waiting pass, and together with the
// removal of finished tombstones where remove is set. It reports whether there may be more rows at once.
func (r *run) runTask(ctx context.Context, c *chunk, t *task, remove bool) (more bool, err error) {
	form := r.form(*t, c.how)
	limit := r.limit(*t, form)
	if t.reference.exactly() {
		if err := r.see(ctx, c, t, form, limit); err != nil || len(t.seen) == 0 {
			return false, err
		}
	}
	if form == piecewise && t.stretches.underWay() && t.stretches.blocks(limit) == 0 {
		t.stretches.stop()
	}
	if form == piecewise && len(t.window) == 0 && !t.stretches.underWay() {
		if err := r.look(ctx, c, t, limit); err != nil || len(t.window) == 0 && !t.stretches.underWay() {
			return t.scan.underWay() || t.scan.found, err
		}
	}
	if form == piecewise && (t.stretches.underWay() || len(t.window) > limit) {
		r.sessions.Connect(ctx)
	}
	parts := r.parts(c, *t, form, limit, remove, false)
	atOnce := r.send(ctx, parts, form)
	more, apart, err := r.absorb(ctx, c, *t, form, limit, parts, atOnce)
	switch {
	case apart && !c.done():
		return r.runTask(ctx, c, t, remove)
	case err != nil:
		return false, err
	}
	var rows int64
	for _, p := range parts {
		rows += p.rows
	}
	switch {
	case form != piecewise:
	case t.stretches.underWay():
		t.stretches.advance(uint32(len(parts))*t.stretches.blocks(limit), rows)
	default:
		t.window = t.window[min(len(parts)*limit, len(t.window)):]
	}
	r.learn(ctx, c, *t, form, parts)
	return more, nil
}

// statements are those of one part of a task; the last one cleans.
func (r *run) statements(keys drain.Keys, t task, form pass, limit int) []batch.Statement {
	names := r.session(t.reference).Names
	var all []batch.Statement
	add := func(sql string, args []any) { all = append(all, batch.Statement{SQL: sql, Args: args}) }
	if keys.Keep != nil {
		all = append(all, keys.Keep.Begin(names))
	}
	switch {
	case t.reference.exactly():
		lock := t.reference.Lock()
		if form == skipping {
			lock += " SKIP LOCKED"
		}
		add(t.reference.ExactStatement(names, t.leaf, keys, t.seen, lock))
	case form == direct:
		add(BitmapOn, nil)
		add(t.reference.DirectStatement(names, t.leaf, keys))
	case form == piecewise && t.stretches.underWay():
		add(t.reference.StretchStatement(names, t.leaf, keys, t.stretches.next, t.stretches.blocks(limit)))
	case form == piecewise:
		add(t.reference.PieceStatement(names, t.leaf, keys, t.window[:min(limit, len(t.window))], t.skips))
	default:
		if form == waiting {
			add(t.reference.PickStatement(t.leaf, "", t.reference.Lock(), keys, limit))
		}
		add(t.reference.CleanStatement(names, t.leaf, keys, limit))
	}
	return all
}

// look reads the next window of a task. Where the last one cleaned nothing, something keeps the rows there,
// and the next one would clean nothing either: the waiting pass finds out.
func (r *run) look(ctx context.Context, c *chunk, t *task, limit int) error {
	if t.scan.underWay() {
		return r.lookOn(ctx, c, t)
	}
	t.scan.found = false
	if t.looked && c.cleaned == t.cleanedBefore {
		if !t.skips {
			return nil
		}
		t.skips, t.lockedOnly = false, true
	}
	wanted := t.stretches.looksFor(!t.looked)
	if t.slow() {
		wanted = min(wanted, limit*slowWindow)
	}
	t.looked, t.cleanedBefore = true, c.cleaned
	if t.reference.blocks > 0 {
		return r.lookOn(ctx, c, t)
	}
	limits := r.engine.Session.Limits
	if r.contended {
		limits.StatementTimeout = min(limits.StatementTimeout, beside)
	}
	sql, args := t.reference.PickStatement(t.leaf, "picked.ctid", "", c.targetKeys(t.reference), wanted)
	err := r.readWindow(ctx, t, limits, sql, args)
	switch {
	case err != nil && batch.Judge(err).Verdict == batch.Timeout && r.engine.Adaptive.on() && !t.reference.Indexed[t.leaf.OID]:
		t.reference.blocks = firstBlocks
		return r.lookOn(ctx, c, t)
	case err != nil && batch.Judge(err).Verdict == batch.Timeout && wanted > limit:
		// A cold cache, or index entries of many rows that are gone: fewer at once.
		sql, args = t.reference.PickStatement(t.leaf, "picked.ctid", "", c.targetKeys(t.reference), limit)
		if err := r.readWindow(ctx, t, limits, sql, args); err != nil {
			return err
		}
	case err != nil:
		return err
	case len(t.window) == 0:
		c.saw(t)
	}
	t.stretches.looked(r.session(t.reference).Took(), r.engine.Adaptive.Target)
	if t.stretches.begin(t.window, limit) {
		t.window = nil
	}
	return nil
}

// readWindow runs a statement that reads pointers, and perhaps others before it.
func (r *run) readWindow(ctx context.Context, t *task, limits batch.Limits, sql string, args []any) error {
	_, err := r.in(ctx, t.reference.Database, limits, batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&t.window, pgx.RowTo[pgtype.TID])})
	return err
}

// remove takes the tombstones that have ended out of the chunk.
func (r *run) remove(c *chunk, ended settled) {
	r.stats.count(c.parent, ParentCounts{Processed: int64(len(ended.gone)), Revived: int64(len(ended.revived))})
	over := make(map[int64]bool, len(c.tombstones)) // A search in a list would take as long as the statement.
	for _, id := range ended.revived {
		over[id] = false
	}
	r.stats.noteRevived(c, over)
	for _, id := range ended.gone {
		over[id] = true
	}
	c.tombstones = slices.DeleteFunc(c.tombstones, func(t tombstone) bool {
		gone, is := over[t.id]
		if gone {
			r.stats.Latency.Add(time.Since(t.made))
		}
		return is
	})
}

// settle removes finished tombstones in a transaction of its own, where no task could take that along. What
// is left counts a failed attempt if the chunk has failed, and is waited for otherwise.
func (r *run) settle(ctx context.Context, c *chunk) (rest, error) {
	// A table that cannot be read would fail the removal as well, for all.
	if c.failed == nil || c.failed.Verdict != batch.Hopeless && c.failed.Verdict != batch.Unavailable {
		var ended settled
		err := r.end(ctx, c, &ended)
		if err != nil {
			ended = settled{} // Rolled back.
			f := r.judge(ctx, c.parent, err, c.parent.Label())
			switch {
			case f.Verdict == batch.Fatal:
				return nothing(), fmt.Errorf("%w: %w", errRemoval, err)
			case f.Lock() && c.failed == nil:
				r.findLocked(ctx, c.parent)
				r.waitWith(c, c.again(), "tombstones of "+f.Table+": "+f.Message, "")
				return later(c), nil
			case f.Lock():
				r.findLocked(ctx, c.parent) // The chunk's own failure stays the reason that its tombstones record.
			case f.Verdict != batch.Hopeless && f.Verdict != batch.Unavailable && len(c.tombstones) > 1:
				return divided(c, split), nil
			default:
				if c.failed == nil && f.Verdict == batch.Hopeless {
					f.Verdict = batch.Unavailable // A lost grant, say: no tombstone is the cause.
				}
				r.stats.fail(f)
				c.fail(f)
				c.gaveUp = nil
			}
		}
		r.remove(c, ended)
	}
	switch {
	case c.done():
		return nothing(), nil
	case c.failed == nil:
		return r.wait(ctx, c)
	}
	failed, waits, err := r.splitFailed(ctx, c)
	if err != nil {
		return nothing(), err
	}
	if err := r.recordFailure(ctx, c.parent, failed, *c.failed); err != nil || len(waits) == 0 {
		return nothing(), err
	}
	c.tombstones, c.failed, c.gaveUp = waits, nil, nil
	return r.wait(ctx, c)
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
	// Other sessions cannot hold that many children up one after another; a trigger that undoes the change can.
	const most = 20
	if c.idle >= patience || c.passes > most {
		f := batch.Fault{
			Table:   c.parent.Label(),
			Message: "children remain that no session has locked: a trigger or rule of a child table keeps them or puts them back",
		}
		r.stats.fail(f)
		return nothing(), r.recordFailure(ctx, c.parent, c.tombstones, f)
	}
	c.how = waiting
	c.exact, c.seen = nil, nil
	c.verify = r.probe(ctx, c.parent, keysOf(c.parent, c.tombstones))
	if f := r.troubleOf(c.parent); f != nil {
		// The probe counts references with trouble as without children, and would let the tombstones go.
		r.stats.fail(*f)
		return nothing(), r.recordFailure(ctx, c.parent, c.tombstones, *f)
	}
	c.plan(c.verify)
	return later(c), nil
}

// counts scans the number of rows of a statement that counts them itself; nil for all others.
func (r *Reference) counts(keep *drain.Keep, counted *int64) func(pgx.Rows) error {
	if r.Definition.CleanerClass == "" && keep == nil {
		return nil
	}
	return batch.One(counted)
}

// figure is where a run counts rows of the reference in one leaf.
func (r *Reference) figure(leaf Table) *batch.Figure {
	figure := &batch.Figure{Field: "delete_count_by_table", Label: r.Child.Label(), Table: leaf.OID}
	if r.Updates() {
		figure.Field = "update_count_by_table"
	}
	return figure
}

// cleaned notes rows of a statement that went through.
func (r *run) cleaned(ctx context.Context, t task, form pass, parents int, rows int64, more bool) {
	r.breaker.succeeded(t)
	r.passed(t, form, rows)
	r.stats.clean(t.reference, rows)
	if form == skipping || form == direct {
		t.reference.learn(parents, rows, more)
	}
	if r.engine.Progress != nil {
		r.engine.Progress(ctx, r.stats)
	}
}
