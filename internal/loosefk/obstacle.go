package loosefk

import (
	"context"
	"fmt"
	"slices"

	"sexton/internal/batch"
	"sexton/internal/each"
	"sexton/internal/pace"
)

// Others' locks are no failure of a tombstone: it counts no attempt and is not put off. What they are in the way of is tried
// again after a pause, and as soon as the transaction that was seen in the way has ended; the run does the rest meanwhile.
//
// A lock on rows blocks the target for waiting passes alone, since the others skip such rows: so one statement in all waits,
// however many parents have locked children. A lock on the whole leaf keeps all statements away from it.

// inTheWay notes what kept a task's statement from going through.
func (r *run) inTheWay(ctx context.Context, c *chunk, t task, f batch.Fault) {
	seen := r.session(t.reference).Seen()
	if t.reference.Remote {
		seen.Transaction = "" // It is asked for on this server.
	}
	reason := "rows of " + f.Table + ": " + f.Message
	if seen.Text != "" {
		reason = f.Table + ": " + seen.Text
	}
	form := r.form(t, c.how)
	switch {
	case f.Verdict == batch.LockTimeout && r.findLocked(ctx, c.parent) && r.locked[t.leaf.OID].Waits():
		r.waitWith(c, r.locked[t.leaf.OID], "", "")
	case f.Verdict == batch.LockTimeout && form == waiting:
		if r.blocked[t.target()] == nil {
			r.blocked[t.target()] = &pace.Blocked{}
		}
		r.waitWith(c, r.blocked[t.target()], reason, seen.Transaction)
	default:
		r.waitWith(c, c.again(), reason, seen.Transaction)
	}
	c.passes, c.idle = 0, 0
}

// again is the chunk's own wait, which grows with every one.
func (c *chunk) again() *pace.Blocked {
	if c.own == nil {
		c.own = &pace.Blocked{}
	}
	return c.own
}

// waitWith leaves a chunk alone for the pause of b, which is new where there is a reason.
func (r *run) waitWith(c *chunk, b *pace.Blocked, reason, transaction string) {
	if reason != "" {
		b.Again(reason, transaction)
		r.rows.Add(b)
	}
	c.blocked = b
}

// obstacle names the thing that a task has to wait for in a pass, or nil.
func (r *run) obstacle(t task, how pass) *pace.Blocked {
	if b := r.locked[t.leaf.OID]; b.Waits() {
		return b
	}
	if b := r.blocked[t.target()]; how == waiting && b.Waits() {
		return b
	}
	return nil
}

// passed forgets what was in the way of a statement that went through.
func (r *run) passed(t task, form pass, rows int64) {
	delete(r.locked, t.leaf.OID)
	if form == waiting || rows > 0 {
		delete(r.blocked, t.target())
	}
}

// findLocked notes the leaves of a parent's children that others have locked as a whole, and reports whether there are any.
func (r *run) findLocked(ctx context.Context, parent *Parent) bool {
	locked := false
	for _, database := range r.databases(parent) {
		var leaves []uint32
		session := r.engine.Session
		for _, reference := range parent.References {
			if reference.Database == database {
				session = r.session(reference)
				leaves = append(leaves, reference.Child.OID)
				for _, leaf := range reference.Leaves {
					leaves = append(leaves, leaf.OID)
				}
			}
		}
		found, err := session.TableLocks(ctx, leaves)
		if err != nil {
			return false // Whatever is wrong comes up in the statement that it belongs to.
		}
		known := map[uint32]bool{}
		for _, o := range found {
			if !known[o.Table] {
				known[o.Table], locked = true, true
				if database != r.engine.Database {
					o.Transaction = ""
				}
				r.lock(o)
			}
		}
	}
	return locked
}

// settleWait leaves a chunk for the pause only where all that is left of it has to wait.
func (r *run) settleWait(c *chunk) {
	if c.blocked != c.own && slices.ContainsFunc(c.tasks, func(t task) bool { return r.obstacle(t, c.how) == nil }) {
		c.blocked = nil
	}
}

func (r *run) lock(o batch.Obstacle) {
	b := r.locked[o.Table]
	if b == nil {
		b = &pace.Blocked{}
		r.locked[o.Table] = b
	}
	b.Again(o.Text, o.Transaction)
	r.tables.Add(b)
}

// unasked are the references that a probe leaves out, and that count as live: whose leaves others have locked, or are read by
// ranges of blocks as they are too big to be read at once.
func (r *run) unasked(parent *Parent) []*Reference {
	var without []*Reference
	for _, reference := range parent.References {
		locked := r.locked[reference.Child.OID].Waits() ||
			slices.ContainsFunc(reference.Leaves, func(leaf Table) bool { return r.locked[leaf.OID].Waits() })
		if locked || reference.blocks > 0 {
			without = append(without, reference)
		}
	}
	return without
}

// free ends waits for transactions that are over.
func (r *run) free(ctx context.Context) error {
	before := r.tables.Reason()
	for _, o := range []*pace.Obstacles{&r.rows, &r.tables} {
		if err := o.Free(ctx, r.engine.Session.Over); err != nil {
			return err
		}
	}
	if r.tables.Reason() != before || before != "" && r.stats.WaitingFor == "" {
		r.waitsFor(ctx, "", "")
	}
	return nil
}

// splitFailed divides what is left of a chunk that has failed: only tombstones with children in the references that were given up count an
// attempt for it. The others have children that another session has locked, which is no failure.
func (r *run) splitFailed(ctx context.Context, c *chunk) (failed, waits []tombstone, err error) {
	if len(c.gaveUp) == 0 || c.failed.Verdict != batch.Timeout {
		return c.tombstones, nil, nil // The removal has failed, or a table that cannot be read at all.
	}
	gaveUp := each.Of(c.parent.References, func(reference *Reference) bool { return slices.Contains(c.gaveUp, reference) })
	keys, err := r.withChildren(ctx, r.engine.Session.Limits.ShortWaits(), c.parent, keysOf(c.parent, c.tombstones), gaveUp)
	switch f := batch.Judge(err); {
	case err == nil:
	case f.Verdict == batch.Fatal:
		return nil, nil, err
	case f.Lock() && r.findLocked(ctx, c.parent):
		return nil, c.tombstones, nil // It is told once the tables are free.
	default:
		return c.tombstones, nil, nil
	}
	for _, t := range c.tombstones {
		if t.among(keys) {
			failed = append(failed, t)
		} else {
			waits = append(waits, t)
		}
	}
	return failed, waits, nil
}

// recordFailure counts an attempt for tombstones and records the reason. Tombstones that wait for another database are put off for a
// while, which is no attempt.
func (r *run) recordFailure(ctx context.Context, parent *Parent, tombstones []tombstone, f batch.Fault) error {
	for _, l := range r.queues {
		if l.parent == parent {
			l.leave(tombstones)
		}
	}
	ids, times := positions(tombstones)
	var putOff, recorded int64
	var wait *float64
	if f.Verdict == batch.Unavailable {
		seconds := r.putOffFor(parent).Seconds()
		wait = &seconds
	}
	_, err := r.engine.Session.Run(ctx, batch.Statement{
		SQL:  r.engine.statement("record_failure"),
		Args: []any{parent.Recorded, ids, times, f.Text(), f.Verdict == batch.Unfinished, wait}, Scan: batch.One(&putOff, &recorded),
	})
	if err != nil {
		return fmt.Errorf("record failed attempts: %w", err)
	}
	r.stats.count(parent, ParentCounts{Rescheduled: putOff, Incremented: recorded - putOff})
	return nil
}

// waitsFor tells at once what the run waits for from now on; "" is nothing but a table that others have locked, while the run
// does the rest.
func (r *run) waitsFor(ctx context.Context, class pace.WaitClass, reason string) {
	if reason == "" {
		reason, class = r.tables.Reason(), pace.WaitLock
	}
	if r.stats.WaitingFor == reason {
		return
	}
	if reason == "" {
		class = ""
	}
	r.stats.WaitingFor, r.stats.WaitingClass = reason, class
	if r.engine.Progress != nil {
		r.engine.Progress(ctx, r.stats)
	}
}
