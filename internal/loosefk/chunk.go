package loosefk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
)

// chunk is a group of tombstones of one parent that is worked off together: few enough that the children
// of all of them fit into one statement per child table. With many parents in the list every limited
// statement would pay again for the index entries of all of them.
type chunk struct {
	parent     *Parent
	tombstones []tombstone
	// tasks are the statements still to be tried in this pass.
	tasks []task
	// verify marks the references whose children decide whether a tombstone is done.
	verify []bool
	how    pass
	// begun tells that a statement has been run for it, so that an unfinished end counts as an attempt.
	begun bool
	// cleaned counts the rows of the current pass, idle the waiting passes in a row that cleaned none.
	cleaned int64
	idle    int
	// alone makes the removal a transaction of its own, after it failed together with a task.
	alone  bool
	failed *failure
}

// task is one child table, or one leaf partition of it, that a chunk has to be cleaned from.
type task struct {
	reference *Reference
	leaf      Table
	// limit bounds the rows of a statement; it shrinks where statements time out.
	limit   int
	retries int
}

// sort orders tombstones by key, so that the children of one chunk lie close together in the index.
func (p *Parent) sort(tombstones []tombstone) {
	slices.SortFunc(tombstones, func(a, b tombstone) int {
		if p.Integer {
			return cmp.Compare(*a.integer, *b.integer)
		}
		return cmp.Compare(*a.text, *b.text)
	})
}

func newChunk(p *Parent, tombstones []tombstone, live []bool) *chunk {
	c := &chunk{parent: p, tombstones: slices.Clone(tombstones), verify: live}
	c.plan(live)
	return c
}

// plan lists the tasks of one pass over the live references.
func (c *chunk) plan(live []bool) {
	c.tasks, c.cleaned = nil, 0
	for i, reference := range c.parent.References {
		if !live[i] {
			continue
		}
		for _, leaf := range reference.Leaves {
			c.tasks = append(c.tasks, task{reference: reference, leaf: leaf, limit: reference.limit()})
		}
	}
}

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

// chunkSize is the number of parents whose children are expected to fit into one statement of every live
// reference.
func (p *Parent) chunkSize(live []bool) int {
	// Without knowledge, start small. A tenth is left free, as a statement that is full to the last row
	// cannot tell that it was enough.
	const unknown, fill = 100, 0.9
	size := loadSize
	for i, reference := range p.References {
		if !live[i] {
			continue
		}
		rows := reference.rowsPerParent
		if rows == 0 {
			rows = unknown
		}
		size = min(size, int(fill*float64(reference.limit())/rows))
	}
	return max(size, 1)
}

// learn updates the moving average of children per parent.
func (r *Reference) learn(parents int, rows int64, full bool) {
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

// slice gives a chunk one statement per task. It returns what is left to do: nothing, the chunk itself,
// or the two halves of it where one statement was too much for all its parents together.
func (r *run) slice(ctx context.Context, c *chunk) ([]*chunk, error) {
	c.begun = true
	removed, left, err := r.work(ctx, c)
	if err != nil || left != nil || c.done() {
		return left, err
	}
	if !removed {
		if halves, err := r.finish(ctx, c); err != nil || halves != nil || c.done() {
			return halves, err
		}
	}
	return r.wait(ctx, c)
}

// work runs the chunk's tasks. It reports whether the last of them took the removal of finished tombstones
// along, and what is left where the pass is not through.
func (r *run) work(ctx context.Context, c *chunk) (removed bool, left []*chunk, err error) {
	tasks := c.tasks
	c.tasks = nil
	for i, t := range tasks {
		rest := tasks[i+1:]
		if r.ended() {
			c.tasks = append(c.tasks, tasks[i:]...)
			return false, []*chunk{c}, nil
		}
		if known, open := r.breaker.open(t, c.how); open {
			c.fail(known)
			continue
		}
		removed = len(rest) == 0 && len(c.tasks) == 0 && c.failed == nil && !c.alone
		again, err := r.step(ctx, c, t, removed)
		switch {
		case err != nil:
			left, err := r.recover(ctx, c, t, rest, err)
			return false, left, err
		case again && len(c.tombstones) > 1:
			// One of the parents has more children than fit: let the others pass.
			c.tasks = append(append(c.tasks, t), rest...)
			return false, c.halves(), nil
		case again && !c.done():
			c.tasks = append(c.tasks, t)
		}
	}
	if len(c.tasks) > 0 {
		return false, []*chunk{c}, nil
	}
	return removed, nil, nil
}

func (c *chunk) done() bool { return len(c.tombstones) == 0 }

// fail notes why the chunk cannot be finished in this run; the first reason is kept.
func (c *chunk) fail(f failure) {
	if c.failed == nil {
		c.failed = &f
	}
}

// step runs one task's statement: behind one that waits for locks in the waiting pass, and together with the
// removal of finished tombstones if it is the pass's last. It reports whether there may be more rows at once.
func (r *run) step(ctx context.Context, c *chunk, t task, remove bool) (again bool, err error) {
	keys, limit := keysOf(c.parent, c.tombstones), r.budget.rows(t.reference, t.limit)
	var statements []batch.Statement
	if c.how == waiting {
		sql, args := c.parent.waitStatement(t.reference, t.leaf, keys, limit)
		statements = append(statements, batch.Statement{SQL: sql, Args: args})
	}
	cleaning := len(statements)
	sql, args := c.parent.cleanStatement(r.engine.Session.Names, t.reference, t.leaf, keys, limit)
	clean := batch.Statement{SQL: sql, Args: args}
	var counted int64
	if t.reference.Definition.CleanerClass != "" {
		clean.Scan = func(rows pgx.Rows) (err error) {
			counted, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
			return err
		}
	}
	statements = append(statements, clean)
	var gone []int64
	if remove {
		statements = append(statements, r.removal(c, &gone))
	}
	affected, err := r.engine.Session.Run(ctx, statements...)
	if failed, ok := errors.AsType[*batch.StatementError](err); ok && remove && failed.Index == cleaning+1 {
		return false, fmt.Errorf("%w: %w", errRemoval, err)
	}
	if err != nil {
		return false, err
	}
	rows := affected[cleaning]
	if clean.Scan != nil {
		rows = counted
	}
	r.breaker.succeeded(t)
	r.stats.clean(t.reference, rows)
	c.cleaned += rows
	full := rows >= int64(limit)
	if c.how == skipping {
		t.reference.learn(len(c.tombstones), rows, full)
	}
	r.remove(c, gone)
	return full, nil
}

// removal is the statement that removes the chunk's finished tombstones.
func (r *run) removal(c *chunk, gone *[]int64) batch.Statement {
	sql, args := c.parent.removeStatement(r.engine.Session.Names, c.tombstones, c.verify)
	return batch.Statement{SQL: sql, Args: args, Scan: func(rows pgx.Rows) (err error) {
		*gone, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	}}
}

func (r *run) remove(c *chunk, gone []int64) {
	r.stats.Processed += int64(len(gone))
	c.tombstones = slices.DeleteFunc(c.tombstones, func(t tombstone) bool { return slices.Contains(gone, t.id) })
}

// finish removes finished tombstones in a transaction of its own, after the last task, and blames what is
// left where the chunk has failed.
func (r *run) finish(ctx context.Context, c *chunk) ([]*chunk, error) {
	if c.failed == nil || !c.failed.tableWide() {
		var gone []int64
		if _, err := r.engine.Session.Run(ctx, r.removal(c, &gone)); err != nil {
			f, verdict := judge(err, "")
			switch {
			case verdict == fatal:
				return nil, fmt.Errorf("remove tombstones of %s: %w", c.parent.Recorded, err)
			case verdict != hopeless && len(c.tombstones) > 1:
				return c.halves(), nil
			}
			c.fail(f)
		}
		r.remove(c, gone)
	}
	if c.failed == nil || c.done() {
		return nil, nil
	}
	failed := c.tombstones
	c.tombstones = nil
	return nil, r.blame(ctx, c.parent, failed, *c.failed)
}

// halves splits a chunk so that a culprit among its tombstones ends up alone.
func (c *chunk) halves() []*chunk {
	middle := len(c.tombstones) / 2
	left, right := *c, *c
	left.tombstones, right.tombstones = slices.Clone(c.tombstones[:middle]), slices.Clone(c.tombstones[middle:])
	left.tasks, right.tasks = slices.Clone(c.tasks), slices.Clone(c.tasks)
	return []*chunk{&left, &right}
}

// wait plans the waiting pass over what the skipping pass had to leave: children that others had locked, or
// that moved while a statement ran.
func (r *run) wait(ctx context.Context, c *chunk) ([]*chunk, error) {
	if c.how == waiting && c.cleaned == 0 {
		c.idle++
	} else {
		c.idle = 0
	}
	if c.idle >= patience {
		c.fail(failure{message: "children remain that nobody has locked: a trigger, rule or row-level security policy of a child table keeps them"})
		return r.finish(ctx, c)
	}
	c.how = waiting
	c.verify = r.probe(ctx, c.parent, keysOf(c.parent, c.tombstones))
	c.plan(c.verify)
	return []*chunk{c}, nil
}

// blame counts an attempt for tombstones and records the reason.
func (r *run) blame(ctx context.Context, parent *Parent, tombstones []tombstone, f failure) error {
	ids, times := places(tombstones)
	var putOff int64
	_, err := r.engine.Session.Run(ctx, batch.Statement{
		SQL: r.engine.Session.Names.Render(blameSQL), Args: []any{parent.Recorded, ids, times, f.text()},
		Scan: func(rows pgx.Rows) (err error) {
			putOff, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
			return err
		},
	})
	if err != nil {
		return fmt.Errorf("record failed attempts: %w", err)
	}
	r.stats.Rescheduled += putOff
	return nil
}
