package loosefk

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/batch"
	"sexton/internal/lease"
)

// verdict says what an error means for the tombstones in hand.
type verdict int

const (
	// fatal ends the run: the connection, the lease or the server is gone, and no tombstone is to blame.
	fatal verdict = iota
	// hopeless concerns the table or the statement, so that fewer parents would fail alike.
	hopeless
	// conflict comes from running beside others; the same statement may succeed the next time.
	conflict
	// timeout is a statement that took too long, lockTimeout one that waited too long for a lock.
	timeout
	lockTimeout
	// rowError is anything else: it may be due to a single row.
	rowError
)

// judge classifies an error by its SQLSTATE.
func judge(err error, table string) (failure, verdict) {
	var pgErr *pgconn.PgError
	var failed *batch.StatementError
	if errors.As(err, &failed) && failed.Index == batch.Frame {
		return failure{}, fatal
	}
	if errors.Is(err, lease.ErrLost) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || !errors.As(err, &pgErr) {
		return failure{}, fatal
	}
	f := failure{table: table, sqlState: pgErr.Code, message: pgErr.Message}
	switch pgErr.Code {
	case "57014":
		return f, timeout
	case "55P03":
		return f, lockTimeout
	case "40001", "40P01":
		return f, conflict
	}
	switch pgErr.Code[:2] {
	case "08", "25", "53", "57": // connection, read-only or broken transaction, resources, shutdown
		return f, fatal
	case "42", "0A", "3F", "58", "XX": // syntax or access, not supported, no schema, system, corruption
		return f, hopeless
	}
	return f, rowError
}

// tableWide tells that no statement that reads the table can work, not even one that only looks.
func (f failure) tableWide() bool {
	return f.sqlState != "" && slices.Contains([]string{"42", "0A", "3F", "58", "XX"}, f.sqlState[:2])
}

// patience is how often in a row a child table may time out, and a statement be beaten by others, before
// the run gives up on it.
const patience = 3

// breaker remembers the child tables that this run has given up, so that one broken or locked table cannot
// eat the time of all others.
type breaker struct {
	broken   map[key]failure
	timeouts map[key]int
}

// pass tells how a chunk treats rows that another transaction has locked.
type pass int

const (
	// skipping leaves locked rows for later, so that nobody waits for anybody.
	skipping pass = iota
	// waiting waits for them under the lock timeout.
	waiting
)

// key is a child table in one pass: a table that cannot be waited for can still be skipped through.
type key struct {
	leaf uint32
	how  pass
}

func newBreaker() breaker {
	return breaker{broken: map[key]failure{}, timeouts: map[key]int{}}
}

func (b *breaker) open(t task, how pass) (failure, bool) {
	f, broken := b.broken[key{t.leaf.OID, how}]
	return f, broken
}

func (b *breaker) succeeded(t task) {
	delete(b.timeouts, key{t.leaf.OID, skipping})
	delete(b.timeouts, key{t.leaf.OID, waiting})
}

// failed takes note of a failure and reports whether the table is given up now.
func (b *breaker) failed(t task, how pass, f failure, v verdict) bool {
	at := key{t.leaf.OID, how}
	switch v {
	case hopeless:
		b.broken[key{t.leaf.OID, skipping}], b.broken[key{t.leaf.OID, waiting}] = f, f
		return true
	case timeout, lockTimeout:
		if b.timeouts[at]++; b.timeouts[at] >= patience {
			b.broken[at] = f
			return true
		}
	default:
	}
	return false
}

// errRemoval marks a step that failed in the removal of tombstones and not in its own statement.
var errRemoval = errors.New("remove tombstones")

// recover decides what becomes of a chunk after one of its statements failed: it goes on with the other
// tasks, tries the same in smaller pieces, or gives the failed table up.
func (r *run) recover(ctx context.Context, c *chunk, t task, rest []task, err error) ([]*chunk, error) {
	f, v := judge(err, t.reference.Child.Label())
	if v == fatal {
		return nil, err
	}
	if errors.Is(err, errRemoval) {
		// It took the cleaned rows back with it: do the two apart.
		c.alone = true
		c.tasks = append(c.tasks, t)
		return []*chunk{c}, nil
	}
	r.stats.fail(f)
	givenUp := r.breaker.failed(t, c.how, f, v)
	const fewest = 10
	switch {
	case givenUp:
		c.fail(f)
	case v == conflict && t.retries < patience:
		t.retries++
		c.tasks = append(c.tasks, t)
	case len(c.tombstones) > 1:
		c.tasks = append(append(c.tasks, t), rest...)
		return c.halves(), nil
	case v == timeout && t.limit > fewest:
		t.limit = max(t.limit/10, fewest)
		c.tasks = append(c.tasks, t)
	default:
		c.fail(f)
	}
	c.tasks = append(c.tasks, rest...)
	if len(c.tasks) > 0 {
		return []*chunk{c}, nil
	}
	if halves, err := r.finish(ctx, c); halves != nil || err != nil || c.done() {
		return halves, err
	}
	return []*chunk{c}, nil
}
