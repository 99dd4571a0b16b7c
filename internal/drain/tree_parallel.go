package drain

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/lease"
	"sexton/internal/pgcatalog"
)

// mostQueued limits the rows that the forks of a Tree divide among themselves at a time.
const mostQueued = 2000

// Fork returns a Tree that deletes rows below a window over another session, while other
// forks delete other rows below it. The caller sets its functions and its pace.
func (t *Tree) Fork(session *batch.Session, above *dml.Window) *Tree {
	// A fork that changes a row of the window above follows it to its new version.
	top := &dml.Window{Table: above.Table, Leaf: above.Leaf, Rows: slices.Clone(above.Rows)}
	fork := &Tree{
		Session: session, Owner: t.Owner, Target: t.Target, Rows: t.Rows, Sizes: t.Sizes, Stack: []*dml.Window{top},
		forked: true,
		failed: map[uint32][]dml.Tuple{}, stuck: map[uint32][]dml.Tuple{},
	}
	for leaf, tuples := range t.failed {
		fork.stuck[leaf] = slices.Clone(tuples)
	}
	return fork
}

// join adds the results of a fork.
func (t *Tree) join(fork *Tree) {
	t.Changes += fork.Changes
	t.Failures += fork.Failures
	if fork.Deepest > t.Deepest {
		t.Deepest, t.Lowest = fork.Deepest, fork.Lowest
	}
	if t.Fault == nil {
		t.Fault = fork.Fault
	}
	if t.Obstacle.Message == "" {
		t.Obstacle = fork.Obstacle
	}
	for leaf, tuples := range fork.failed {
		t.failed[leaf] = append(t.failed[leaf], tuples...)
		t.stuck[leaf] = append(t.stuck[leaf], tuples...)
	}
}

// rowQueue holds the rows that forks divide among themselves.
type rowQueue struct {
	mu         sync.Mutex
	rows, left dml.Rows
	err        error
}

// next returns at most n rows, and fewer if the rest must last for all forks.
func (q *rowQueue) next(n, forks int) dml.Rows {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, (len(q.rows)+2*forks-1)/(2*forks))
	rows := q.rows[:n]
	q.rows = q.rows[n:]
	return rows
}

// finish records the rows that were left and the error of one window. It keeps the first
// error, except that lease.ErrLost replaces any other.
func (q *rowQueue) finish(left dml.Rows, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left = append(q.left, left...)
	if q.err == nil || errors.Is(err, lease.ErrLost) {
		q.err = err
	}
}

func (q *rowQueue) failed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err != nil
}

// TakeParallel deletes rows of one leaf that refer to a window's rows by a key, each
// after all rows below it. It divides the rows among forks, of which open returns at most
// the given number. If it returns fewer than two, TakeParallel does nothing. The caller's
// Clear then deletes the rows that are left. A fork skips locked rows, whether another
// fork or another program has locked them.
func (t *Tree) TakeParallel(ctx context.Context, w *dml.Window, ref *dml.Ref, leaf pgcatalog.Table,
	open func(most int) []*Tree,
) error {
	for len(t.stuck[leaf.OID]) < mostExcluded && !t.Paused(ctx) {
		rows, err := w.Children(ctx, t.Read, ref, leaf, t.stuck[leaf.OID], mostQueued)
		switch {
		case err != nil && batch.Judge(err).Verdict == batch.Fatal:
			return err
		case err != nil || len(rows) < 2:
			return nil //nolint:nilerr // The caller's Clear handles the error.
		}
		forks := open(len(rows))
		if len(forks) < 2 {
			return nil
		}
		queue := &rowQueue{rows: rows}
		var running sync.WaitGroup
		for _, fork := range forks {
			paused := fork.Paused
			fork.Paused = func(ctx context.Context) bool { return queue.failed() || paused(ctx) }
			running.Go(func() { fork.takeFrom(ctx, queue, ref, leaf, len(forks)) })
		}
		running.Wait()
		for _, fork := range forks {
			t.join(fork)
		}
		t.stuck[leaf.OID] = append(t.stuck[leaf.OID], queue.left.Tuples()...)
		if queue.err != nil || len(rows) < mostQueued {
			return queue.err
		}
	}
	return nil
}

// takeFrom deletes rows of a queue until none is left or the fork must pause.
func (t *Tree) takeFrom(ctx context.Context, queue *rowQueue, ref *dml.Ref, leaf pgcatalog.Table, forks int) {
	defer func() {
		if r := recover(); r != nil {
			queue.finish(nil, fmt.Errorf("panic: %v\n\n%s", r, debug.Stack()))
		}
	}()
	for !t.Paused(ctx) {
		rows := queue.next(t.windowRows(leaf), forks)
		if len(rows) == 0 {
			return
		}
		left, result, err := t.Take(ctx, &dml.Window{Table: ref.Table, Leaf: leaf, Rows: rows})
		if queue.finish(left, err); err != nil || result == dml.Yielded {
			return
		}
	}
}
