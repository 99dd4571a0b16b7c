package loosefk

import (
	"cmp"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/pace"
)

// chunk is a group of tombstones of one parent that is worked off together: few enough that the children
// of all of them fit into one statement per child table. With many parents in the list every limited
// statement would pay again for the index entries of all of them.
type chunk struct {
	parent     *Parent
	tombstones []tombstone
	// divisor is the number of parts that its statements were to be divided into when its size was chosen.
	divisor int
	// tasks are the statements still to be tried in this pass.
	tasks []task
	// verify marks the references whose children decide whether a tombstone is done.
	verify []bool
	// exact are those of them that need no look: an exact statement of this pass has taken all of their children.
	exact []*Reference
	// seen are leaves without an index that were read in this pass, and had no children of the tombstones any more.
	seen []leafTarget
	how  pass
	// begun reports that a statement has been run for it.
	begun bool
	// cleaned counts the rows of the current pass; idle counts waiting passes in a row that cleaned none,
	// passes all of them.
	cleaned int64
	idle    int
	passes  int
	// changed counts statements of the direct form that others' changes to its rows have ended.
	changed int
	// cut reports that a connection was lost in a statement for its one parent.
	cut bool
	// remote reports that it has children in other databases.
	remote bool
	// alone makes the removal a transaction of its own, after it failed together with a task.
	alone bool
	// passed reports that it has had a turn and waited for another one.
	passed bool
	// blocked, if set, says until when it is left alone; own is its own wait, shared with no other.
	blocked, own *pace.Blocked
	// yields reports that the chunk waits because its rows take long: it goes on as soon as nothing else can.
	yields bool
	// failed is the first reason why the chunk cannot be finished in this run.
	failed *batch.Fault
	// gaveUp are the references that it has failed at, unless that cannot be told.
	gaveUp []*Reference
}

// task is one child table, or one leaf partition of it, that a chunk has to be cleaned from.
type task struct {
	reference *Reference
	leaf      Table
	// window are pointers to rows that are still to be worked off piecewise. Reading many at once matters where
	// an old snapshot keeps deleted entries in the index: every read goes through all of them.
	window []pgtype.TID
	// scan is the way through a leaf that is too big to be looked through in one statement.
	scan blockScan
	// stretches are the way through the table where that needs no pointers.
	stretches stretches
	// looked reports that a window has been read, cleanedBefore what the chunk had cleaned by then.
	looked        bool
	cleanedBefore int64
	// seen are the versions of rows that a statement in another database is about, without the keys that had no parent behind that look.
	seen    []drain.Row
	without any
	// skips makes pieces of a leaf without an index leave out locked rows; lockedOnly reports that the last scan found no others.
	skips, lockedOnly bool
}

// rest is the part of its chunk that one turn leaves.
type rest struct {
	// later goes on in the queue's next turn, next at once.
	later *chunk
	next  []*chunk
}

func nothing() rest { return rest{} }

func later(c *chunk) rest { return rest{later: c} }

// divided splits a chunk, in eight or one by one, so that a culprit among its tombstones ends up alone: soon,
// as each statement that still has it among others costs them time.
func divided(c *chunk, how nextTry) rest {
	size := (len(c.tombstones) + 7) / 8
	if how == isolate {
		size = 1
	}
	var left rest
	for part := range slices.Chunk(c.tombstones, size) {
		d := *c
		d.tombstones, d.tasks = slices.Clone(part), slices.Clone(c.tasks)
		d.exact, d.seen = slices.Clone(c.exact), slices.Clone(c.seen)
		d.own, d.blocked = nil, nil
		d.begun = false // Nothing has been run for these alone.
		left.next = append(left.next, &d)
	}
	return left
}

// sort orders tombstones by key, so that the children of one chunk lie close together in the index.
func (p *Parent) sort(tombstones []tombstone) {
	slices.SortFunc(tombstones, func(a, b tombstone) int {
		switch {
		case b.kept() && !a.kept():
			return -1
		case a.kept() && !b.kept():
			return 1
		}
		if p.Integer {
			return cmp.Compare(*a.integer, *b.integer)
		}
		return cmp.Compare(*a.text, *b.text)
	})
}

func (r *run) newChunk(p *Parent, tombstones []tombstone, live []bool) *chunk {
	c := &chunk{parent: p, tombstones: slices.Clone(tombstones), verify: live}
	if r.engine.Adaptive.on() {
		c.how = direct
	}
	c.plan(live)
	if f := r.troubleOf(p); f != nil {
		r.stats.fail(*f)
		c.fail(*f)
		if _, unreadable := r.unreadable[p]; unreadable {
			c.tasks = nil
		}
	}
	return c
}

// plan lists the tasks of one pass over the live references: those in other databases first, so that the last one can
// take the removal of the tombstones along.
func (c *chunk) plan(live []bool) {
	var remote, told, here []task
	for i, reference := range c.parent.References {
		if !live[i] {
			continue
		}
		for _, leaf := range reference.Leaves {
			t := task{reference: reference, leaf: leaf}
			switch {
			case reference.Remote:
				remote = append(remote, t)
			case reference.Tells:
				told = append(told, t) // Native cascades of other tables may take its rows along, and leave no event.
			default:
				here = append(here, t)
			}
		}
	}
	c.tasks, c.cleaned, c.remote = slices.Concat(remote, told, here), 0, len(remote) > 0
}

// ready reports whether it may be worked on now.
func (c *chunk) ready() bool { return !c.blocked.Waits() }

func (c *chunk) done() bool { return len(c.tombstones) == 0 }

// fail notes why the chunk cannot be finished in this run; the first reason is kept.
func (c *chunk) fail(f batch.Fault, at ...*Reference) {
	if c.failed == nil {
		c.failed = &f
	}
	c.gaveUp = append(slices.Clone(c.gaveUp), at...)
}

// limit is the rows of one statement.
func (r *Reference) limit() int {
	switch {
	case r.Updates():
		return updateLimit
	case r.Definition.DeleteLimit > 0:
		return r.Definition.DeleteLimit
	default:
		return deleteLimit
	}
}

// fill is the part of a statement that a chunk takes. A tenth is left free, as a statement that is full to the last row cannot tell that it was enough.
const fill = 0.9

// chunkSize is the number of parents whose children are expected to fit into one statement of every live
// reference, given the rows of one.
func (p *Parent) chunkSize(live []bool, limit func(*Reference) int) int {
	size := mostLoaded
	for i, counts := range live {
		if !counts {
			continue
		}
		reference := p.References[i]
		rows := cmp.Or(reference.rowsPerParent, reference.assumed, unknownRows)
		size = min(size, int(fill*float64(limit(reference))/rows))
	}
	return max(size, 1)
}

// unknownRows is the number of children per parent that chunks are made for without knowledge: they start small.
const unknownRows = 100.0

// learn updates the moving average of children per parent.
func (r *Reference) learn(parents int, rows int64, full bool) {
	if rows == 0 {
		// None of them had any. Of the others that says little: they are taken for half as big, and no average is made of it.
		r.assumed = max(1, cmp.Or(r.assumed, unknownRows)/2)
		return
	}
	sample := float64(rows) / float64(parents)
	if full {
		// There are more than were seen: do not let a cut-off sample lower the average.
		sample = max(sample, r.rowsPerParent)
	}
	const weight = 0.3
	if r.rowsPerParent == 0 {
		r.rowsPerParent = max(sample, 1)
		return
	}
	r.rowsPerParent = max(1, (1-weight)*r.rowsPerParent+weight*sample)
}
