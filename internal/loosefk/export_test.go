package loosefk

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/batch"
	"sexton/internal/pace"
)

// Blamed returns how many of the tombstones with integer keys count an attempt when the statements on the first reference of the first parent timed
// out, and how many wait.
func (e *Engine) Blamed(ctx context.Context, keys ...int64) (blamed, waits int, err error) {
	r := &run{engine: e, locked: map[uint32]*pace.Blocked{}}
	c := &chunk{parent: e.Parents[0]}
	for _, key := range keys {
		c.tombstones = append(c.tombstones, tombstone{integer: &key})
	}
	c.fail(batch.Fault{Verdict: batch.Timeout}, c.parent.References[0])
	some, others, err := r.splitFailed(ctx, c)
	return len(some), len(others), err
}

// ReadByRanges makes runs read the leaves of all children by so many blocks at first, as after a scan that timed out.
func (p *Parent) ReadByRanges(blocks float64) {
	for _, r := range p.References {
		r.blocks = blocks
	}
}

// Learning are cursors that know what the parents know now.
func Learning(parents []*Parent) *Cursors {
	m := &Cursors{}
	m.note(parents)
	return m
}

// CarryAtMost sets how many tombstones of a parent a run has in hand before it leaves locked ones to the next run.
func (e *Engine) CarryAtMost(tombstones int) { e.carry = tombstones }

// AdoptByPages sets how many tombstones of an unknown name are looked at together.
func (e *Engine) AdoptByPages(tombstones int) { e.page = tombstones }

// AwaitLook waits for the second look that is under way, and reports whether there is or was one.
func (m *Cursors) AwaitLook() bool {
	m.looks.asking.Wait()
	return len(m.looks.of) > 0
}

// Looks are the last looks, one per parent.
func (m *Cursors) Looks() (looks []any) {
	for _, look := range m.looks.of {
		looks = append(looks, look)
	}
	return looks
}

// FailWith makes the last looks have failed with a SQLSTATE: a real one takes an hour for 57014.
func (m *Cursors) FailWith(code string) {
	for _, look := range m.looks.of {
		look.err = &pgconn.PgError{Code: code}
	}
}
