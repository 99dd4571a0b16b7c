package loosefk

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sexton/internal/batch"
	"sexton/internal/pace"
)

const (
	// round is the time in which every queue has a turn, dueEvery how often a busy run looks for queues that have become due.
	round    = time.Second
	dueEvery = 250 * time.Millisecond
	// mostCarried bounds the tombstones that a queue has in hand. Beyond it, tombstones that wait for locks are left to the next run.
	mostCarried = 100_000
	// idlePause is the pause of a run in which all chunks wait.
	idlePause = 100 * time.Millisecond
	// A run that was through so many times, and each time found what had come in meanwhile, lets more come in for a moment: a few
	// tombstones cost as much as hundreds. Beside others it takes more at a time, and more still while others keep deleting: on a busy server
	// each round takes from their share.
	trickle, stream                    = 3, 10
	gather, gatherBeside, gatherStream = 20 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond
)

// queue is the queue of one parent table within a run.
type queue struct {
	parent *Parent
	// after is the position of the last tombstone loaded. A run loads each tombstone once, so a tombstone that
	// failed in it waits for the next run.
	after position
	// drained reports that no tombstone is known to be due behind it.
	drained bool
	// fresh are loaded tombstones that no chunk has yet, live the references with children of them; foreign have keys of another type. They are
	// looked at when it is the queue's turn: loaded is true until then.
	fresh, foreign []tombstone
	live           []bool
	loaded         bool
	// next are the chunks whose turn it is; carried have had one and wait for another. These get half of the queue's time,
	// so a parent with a million children, or with children that take long, holds no other up.
	next, carried []*chunk
	// carrying is how much more of its time carried chunks have had than fresh ones.
	carrying time.Duration
	// left is below the first tombstone that the run has let go of, if it has (leaves).
	left   position
	leaves bool
}

// leave lets go of tombstones: another run loads them again.
func (l *queue) leave(tombstones []tombstone) {
	for _, t := range tombstones {
		if before := t.before(); !l.leaves || before.less(l.left) {
			l.left, l.leaves = before, true
		}
	}
}

// hasRoom reports whether the queue may have more tombstones in hand. If not, it lets go of half of them, the oldest of those
// that wait. The others stay, so that the run goes on until the locks are gone.
func (l *queue) hasRoom(most int) bool {
	held := l.held()
	if held < most {
		return true
	}
	l.carried = slices.DeleteFunc(l.carried, func(c *chunk) bool {
		if held <= most/2 || c.ready() {
			return false
		}
		held -= len(c.tombstones)
		l.leave(c.tombstones)
		return true
	})
	return held < most
}

// chunks are those in hand.
func (l *queue) chunks() []*chunk { return slices.Concat(l.next, l.carried) }

// open reports whether the queue has anything to do in this run.
func (l *queue) open() bool {
	return !l.drained || l.loaded || len(l.fresh)+len(l.next)+len(l.carried) > 0
}

// pastBeginning reports whether the run reads the queue from a later position than its beginning.
func (l *queue) pastBeginning() bool { return beginning().less(l.after) }

// drain serves the queues in turn, each for its share of a round. Deleting children can leave tombstones of their own in
// queues that were already empty, and others come in meanwhile, so it asks again and again.
func (r *run) drain(ctx context.Context) error {
	for first := true; !r.ended(); first = false {
		if through := !slices.ContainsFunc(r.queues, (*queue).open); through || time.Since(r.asked) >= dueEvery {
			if through && r.rounds > trickle {
				r.gather(ctx)
			}
			if err := r.due(ctx); err != nil {
				return err
			}
			if through && !first && slices.ContainsFunc(r.queues, (*queue).open) {
				r.rounds++
			}
		}
		if first && !slices.ContainsFunc(r.queues, (*queue).open) && slices.ContainsFunc(r.queues, (*queue).pastBeginning) {
			// The look that began the run saw work, and it is not above the cursors.
			for _, l := range r.queues {
				l.after = beginning()
			}
			if err := r.due(ctx); err != nil {
				return err
			}
		}
		if err := r.free(ctx); err != nil {
			return err
		}
		open := slices.DeleteFunc(slices.Clone(r.queues), func(l *queue) bool { return !l.open() })
		if len(open) == 0 {
			return nil
		}
		worked := false
		r.closing = nil
		for _, l := range open {
			busy, err := r.serve(ctx, l, len(open))
			if err != nil {
				return err
			}
			worked = worked || busy
		}
		if worked {
			r.waitsFor(ctx, "", "")
		} else if !r.ended() && !r.resume() {
			r.waitsFor(ctx, pace.WaitBackOff, r.rows.Reason())
			r.pace.Pause(ctx, idlePause)
		}
	}
	return r.cutShort(ctx)
}

// gather lets more tombstones come in. It asks for others itself: only statements on children do otherwise.
func (r *run) gather(ctx context.Context) {
	r.pace.Breathe(ctx, 0, 1)
	pause := gather
	if r.engine.Adaptive.on() && !r.pace.Full() {
		if pause = gatherBeside; r.rounds > stream {
			pause = gatherStream
		}
	}
	r.pace.Pause(ctx, pause)
}

// resume ends the pauses of chunks that left their time to others, and reports whether there were any.
func (r *run) resume() (found bool) {
	for _, l := range r.queues {
		for _, c := range l.carried {
			if c.yields && c.blocked.Waits() {
				c.blocked.Free()
				found = true
			}
		}
	}
	return found
}

// due looks for queues with due tombstones behind their position. A run's first look also loads them, unless there are too many, and so do those
// of a run that was through and found more. The first one after work, which is likely to be the last, reads what confirming begins with.
func (r *run) due(ctx context.Context) error {
	if r.asked.IsZero() {
		return r.begin(ctx)
	}
	look := r.engine.first(r.positions())
	statements, loads := slices.Clip(look.Statements[:1]), false
	var last *closing
	switch through := !slices.ContainsFunc(r.queues, (*queue).open); {
	case through && r.rounds == 0:
		last, statements = r.closes(statements)
	case through:
		statements, loads = look.Statements[:2], true
	}
	limits := r.engine.Session.Limits
	limits.Reads = true
	if _, err := r.engine.Session.RunWithin(ctx, limits, statements...); err != nil {
		return fmt.Errorf("look for due tombstones: %w", err)
	}
	r.asked, r.closing = time.Now(), last
	r.fill(look.loaded)
	r.drained(look.due, loads && len(look.loaded) < look.most)
	return nil
}

// closes adds the reads that confirming begins with, unless they are about other databases, too.
func (r *run) closes(statements []batch.Statement) (*closing, []batch.Statement) {
	if _, _, others := r.far(); len(others) > 0 {
		return nil, statements
	}
	last := &closing{horizons: horizons{far: []string{}, farTables: []uint32{}}}
	return last, append(statements, r.horizon(last), r.pageStatement(0, last.horizons, &last.page))
}

// drained notes which queues have nothing due behind what is loaded; all is where that is everything.
func (r *run) drained(due []string, all bool) {
	for _, l := range r.queues {
		l.drained = all || !slices.Contains(due, l.parent.Recorded)
	}
}

// serve works on a queue for its share of a round, and reports whether there was anything to do.
func (r *run) serve(ctx context.Context, l *queue, queues int) (worked bool, err error) {
	ends := time.Now().Add(round / time.Duration(queues))
	for !r.ended() && (!worked || time.Now().Before(ends)) {
		c, carried, err := r.take(ctx, l)
		if err != nil || c == nil {
			return worked, err
		}
		r.pace.Await(ctx)
		if r.ended() {
			l.next = append(l.next, c)
			break
		}
		worked, r.contended = true, queues > 1 || l.open()
		began := time.Now()
		left, err := r.runTasks(ctx, c)
		if err != nil {
			return worked, err
		}
		if took := time.Since(began); carried {
			l.carrying += took
		} else {
			l.carrying = max(0, l.carrying-took)
		}
		if left.later != nil {
			l.carried = append(l.carried, left.later)
		}
		l.next = append(left.next, l.next...)
	}
	return worked, nil
}

// take takes the chunk out of the queue that comes next, if there is one that can be worked on now.
func (r *run) take(ctx context.Context, l *queue) (c *chunk, carried bool, err error) {
	if len(l.next) > 0 {
		c, l.next = l.next[0], l.next[1:]
		return c, c.passed, nil
	}
	if len(l.fresh) == 0 && !l.drained && l.hasRoom(r.engine.most()) {
		if err := r.load(ctx, l); err != nil {
			return nil, false, err
		}
	}
	if l.loaded {
		if err := r.examine(ctx, l); err != nil {
			return nil, false, err
		}
	}
	ready := slices.IndexFunc(l.carried, func(c *chunk) bool { return c.ready() && c.how != waiting })
	if ready < 0 && len(l.fresh) == 0 {
		// The run does not wait for rows that others have locked while there is something else to do.
		ready = slices.IndexFunc(l.carried, (*chunk).ready)
	}
	switch {
	case ready < 0 || len(l.fresh) == 0:
		l.carrying = 0
	case l.carrying > 0:
		ready = -1
	}
	switch {
	case ready >= 0:
		c = l.carried[ready]
		l.carried = slices.Delete(l.carried, ready, ready+1)
		c.passed = true
		return c, true, nil
	case len(l.fresh) > 0:
		// One chunk at a time: its size follows what the ones before it have taught.
		size := l.parent.chunkSize(l.live, r.statementRows)
		divisor := r.divisor(ctx, l.parent, l.live, len(l.fresh))
		size = min(size*divisor, len(l.fresh))
		if at := slices.IndexFunc(l.fresh, func(t tombstone) bool { return t.kept() != l.fresh[0].kept() }); at > 0 {
			size = min(size, at)
		}
		c = r.newChunk(l.parent, l.fresh[:size], l.live)
		c.divisor = divisor
		l.fresh = l.fresh[size:]
		return c, false, nil
	}
	return nil, false, nil
}

// held counts the tombstones of the queue's chunks.
func (l *queue) held() (n int) {
	for _, c := range l.carried {
		n += len(c.tombstones)
	}
	return n
}

// load loads the next tombstones.
func (r *run) load(ctx context.Context, l *queue) error {
	var found []loaded
	most := r.engine.loads(l.parent)
	if _, err := r.engine.Session.Run(ctx, r.engine.loading(spots{[]string{l.parent.Recorded}, []position{l.after}}, most, &found)); err != nil {
		return fmt.Errorf("load tombstones of %s: %w", l.parent.Recorded, err)
	}
	r.fill(found)
	l.drained = len(found) < most
	return nil
}

// examine looks which references have children of the tombstones that a queue has loaded.
func (r *run) examine(ctx context.Context, l *queue) error {
	foreign := l.foreign
	l.loaded, l.foreign = false, nil
	if len(foreign) > 0 {
		f := batch.Fault{Table: l.parent.Label(), Message: "the tombstone's key is not of the type of column " + l.parent.label()}
		r.stats.fail(f)
		if err := r.recordFailure(ctx, l.parent, foreign, f); err != nil {
			return err
		}
	}
	if len(l.fresh) > 0 {
		if l.live = r.obvious(l); l.live == nil {
			l.live = r.probe(ctx, l.parent, keysOf(l.parent, l.fresh))
		}
		l.parent.sort(l.fresh)
	}
	return nil
}

// obvious is the answer to a probe that would save nothing: the parent has one child table, whose one statement for all of the tombstones finds
// out by itself. Otherwise it is nil.
func (r *run) obvious(l *queue) []bool {
	p := l.parent
	if len(p.References) != 1 || !r.engine.Adaptive.on() || r.troubleOf(p) != nil {
		return nil
	}
	live := []bool{true}
	if one := p.References[0]; one.Remote || !one.Index || len(one.Leaves) != 1 || len(l.fresh) > p.chunkSize(live, r.statementRows) {
		return nil
	}
	return live
}
