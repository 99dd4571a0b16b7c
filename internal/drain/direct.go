package drain

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
)

const (
	// cutoffs is the statement timeout of direct statements and pieces, as a multiple of
	// the target time.
	cutoffs = 5
	// shortestCutoff is the minimum statement timeout. On a busy server even a small
	// statement may take this long.
	shortestCutoff = 100 * time.Millisecond
	// lockWait is the lock timeout of statements that skip or defer locked rows when it
	// expires.
	lockWait = 100 * time.Millisecond
	// blockedWait is the lock timeout of direct statements on an edge that is known to be
	// locked.
	blockedWait = 5 * time.Millisecond
	// edgesPerTarget limits the target time of a direct transaction. The transaction may
	// take one target time per edge, but at most this number of target times.
	edgesPerTarget = 5
)

// directTarget returns the time that a direct transaction on all edges of the parent
// should take.
func (s *session) directTarget(p *Parent) time.Duration {
	return s.target() * time.Duration(max(1, min(len(p.Edges), edgesPerTarget)))
}

// shortLimits returns limits with a short lock timeout and a statement timeout of at most
// the given time.
func (s *session) shortLimits(timeout time.Duration) batch.Limits {
	limits := s.on.Limits
	limits.StatementTimeout = min(limits.StatementTimeout, max(timeout, shortestCutoff))
	limits.LockTimeout = min(limits.LockTimeout, lockWait)
	return limits
}

// readLimits returns the limits of a READ ONLY transaction, with a short lock timeout.
func (s *session) readLimits() batch.Limits {
	limits := s.on.Limits
	limits.LockTimeout, limits.Reads = min(limits.LockTimeout, lockWait), true
	return limits
}

// run runs one transaction in the parents' database. It returns the number of rows that
// each statement affected. While other clients use the server, only one session of the
// pass runs a transaction at a time.
func (s *session) run(ctx context.Context, limits batch.Limits,
	statements ...batch.Statement,
) (affected []int64, err error) {
	if s.othersActive.Load() {
		s.turn.Lock()
		defer s.turn.Unlock()
	}
	affected, err = s.on.RunWithin(ctx, limits, statements...)
	s.pause(ctx, s.on.Took())
	return affected, err
}

// directBatch holds the statements of one direct transaction.
type directBatch struct {
	limits     batch.Limits
	statements []batch.Statement
	edges      []*Edge
	// ends[i] is the number of statements up to the last statement of edges[i]. first is
	// the number of statements before the first edge.
	ends  []int
	first int
	// counts[i] reports that the last statement of edges[i] returns the number of changed
	// rows, which is scanned into rows[i]. Otherwise rows[i] is its number of affected
	// rows.
	counts []bool
	rows   []int64
}

// changeDirect changes the rows of edges in one transaction and one round trip. If
// complete is set, it also removes the tombstones. It returns the removed tombstones and
// the number of changed rows.
//
// The transaction is REPEATABLE READ. All its statements share one snapshot, so a
// tombstone is only removed together with all rows of that snapshot.
func (s *session) changeDirect(ctx context.Context, c *chunk, edges []*Edge, complete bool,
	limits batch.Limits,
) (Removed, int64, error) {
	// The transaction of a living parent is READ COMMITTED. It locks the parent's row
	// first, and Source.Complete must have a snapshot that is newer than the lock: it
	// must see the children that an earlier holder of the lock has inserted.
	limits.Repeatable = !c.parent.lives()
	b, removed := &directBatch{limits: limits}, Removed{}
	if c.recheck() && complete {
		b.statements = append(b.statements, c.parent.lateStatement(c, edges))
	}
	if c.parent.lives() {
		sql, args := c.parent.Lock(c.keys())
		b.statements = append(b.statements, batch.Statement{SQL: sql, Args: args})
	}
	s.addEdges(b, c, edges)
	if complete {
		b.statements = append(b.statements, s.Source.Complete(c.parent, c.tombstones, s.mayKeepRows(c.parent),
			&removed))
	}
	if len(b.statements) == 0 {
		return removed, 0, nil
	}
	affected, err := s.run(ctx, b.limits, b.statements...)
	if err != nil {
		return nil, 0, b.withFailedEdge(err)
	}
	var sum int64
	for i, e := range b.edges {
		if !b.counts[i] {
			b.rows[i] = affected[b.ends[i]-1]
		}
		sum += b.rows[i]
		s.reportChanged(ctx, c, e, b.rows[i])
	}
	return removed, sum, nil
}

// addEdges adds the statements of edges to a direct batch. If a move of an edge has
// failed because of duplicates before, the statement that changes the duplicates precedes
// the move.
func (s *session) addEdges(b *directBatch, c *chunk, edges []*Edge) {
	s.mu.Lock()
	upperBounded := s.upperBounded
	for _, e := range edges {
		if e.duplicatesFirst {
			b.edges = append(b.edges, e.Duplicates)
		}
		b.edges = append(b.edges, e)
	}
	s.mu.Unlock()
	b.first, b.rows = len(b.statements), make([]int64, len(b.edges))
	for i, e := range b.edges {
		if s.blockedNow(e) {
			b.limits.LockTimeout = min(b.limits.LockTimeout, blockedWait)
		}
		keys := s.keys(c, e)
		if keys.Keep != nil && !keys.Keep.UseReturning && !e.Updates() && !e.EmitsEvent {
			// The statement reads the rows before it deletes them. RETURNING would fetch
			// each row a second time.
			keys.Keep.ReadLeaf = e.Leaf.OID
		}
		b.statements = append(b.statements, e.statements(s.on.Names, keys, &b.rows[i],
			func(keys dml.Keys) (string, []any) {
				return e.Direct(s.on.Names, e.Leaf, keys, upperBounded)
			})...)
		b.ends, b.counts = append(b.ends, len(b.statements)), append(b.counts, e.countsRows(keys))
	}
}

// withFailedEdge wraps err with the edge whose statement failed, if there is one.
func (b *directBatch) withFailedEdge(err error) error {
	failed, ok := errors.AsType[*batch.StatementError](err)
	if !ok || failed.Index < b.first {
		return err
	}
	for i, e := range b.edges {
		if failed.Index < b.ends[i] {
			return withEdge(err, e)
		}
	}
	return err
}

// edgeError is the error of a statement on one edge.
type edgeError struct {
	error

	edge *Edge
}

func (e *edgeError) Unwrap() error { return e.error }

// withEdge wraps err in an edgeError. It returns nil if err is nil.
func withEdge(err error, e *Edge) error {
	if err == nil {
		return nil
	}
	return &edgeError{err, e}
}

// mayKeepRows reports whether rows of the parent's edges may be left although the direct
// statements succeeded.
func (p *Pass) mayKeepRows(parent *Parent) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(parent.Edges, func(e *Edge) bool { return e.MayKeep || parent.sharesChild(e) })
}

// sharesChild reports whether an edge of another definition updates the same child. Rows
// that its statement changes after the statement of e has run may then belong to e.
func (p *Parent) sharesChild(e *Edge) bool {
	for _, other := range p.Edges {
		if other.Edge != e.Edge && other.Updates() && other.Child.OID == e.Child.OID && other.Database == e.Database {
			return true
		}
	}
	return false
}

// lateStatement returns the statement that sets the transaction's setting sexton.late:
// whether any child of the keys exists, or was changed by an earlier transaction of the
// recheck. Source.Complete reads the setting later in the same transaction.
func (p *Parent) lateStatement(c *chunk, edges []*Edge) batch.Statement {
	args := &dml.Args{}
	terms, keysAt := []string{"false"}, args.Once(c.keys())
	if c.foundRows {
		terms, edges = []string{"true"}, nil
	}
	for _, e := range edges {
		terms = append(terms, e.Finds(p.Key, e.Leaf, p.Parameter(keysAt()), args))
	}
	return batch.Statement{SQL: "SELECT pg_catalog.set_config('sexton.late', (" + strings.Join(terms, " OR ") +
		")::pg_catalog.text, true)", Args: args.Values}
}

// edgesWithRows returns the edges that have rows of the chunk's keys, and all edges in
// other databases. It uses a read-only transaction.
func (s *session) edgesWithRows(ctx context.Context, c *chunk, edges []*Edge) ([]*Edge, error) {
	args := &dml.Args{}
	keysAt := args.Once(c.keys())
	terms := make([]string, len(edges))
	for i, e := range edges {
		if terms[i] = "true"; !e.remote() {
			terms[i] = e.Finds(c.parent.Key, e.Leaf, c.parent.Parameter(keysAt()), args)
		}
	}
	var found []bool
	_, err := s.run(ctx, s.readLimits(),
		batch.Statement{
			SQL: "SELECT ARRAY[" + strings.Join(terms, ",\n") + "]", Args: args.Values,
			Scan: batch.One(&found),
		})
	if err != nil {
		return nil, err
	}
	var some []*Edge
	for i, e := range edges {
		if found[i] {
			some = append(some, e)
		}
	}
	return some, nil
}

// keys returns the keys of a chunk for a statement on the edge. In the parent's database
// the statement skips keys whose row exists or, for living parents, that are no longer
// queued. A statement in another database cannot check that.
func (p *Pass) keys(c *chunk, e *Edge) dml.Keys {
	return dml.Keys{Of: c.parent.Key, Values: c.keys(), CheckParent: !e.remote(), Keep: p.keepOf(c, e)}
}

// keepOf returns how a statement for the chunk saves its rows for undo, or nil if it does
// not save them. Rows are saved under the undo sets of their parents.
func (p *Pass) keepOf(c *chunk, e *Edge) *dml.Kept {
	if e.Keep == nil || c.tombstones[0].Origin == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &dml.Kept{Keep: e.Keep, UseReturning: *e.UseReturning, Origins: c.origins()}
}

// countsRows reports whether the edge's last statement returns the number of changed rows
// as its result. Such a statement does more than change rows, so its command tag has a
// different number.
func (e *Edge) countsRows(keys dml.Keys) bool {
	return e.Count != "" || keys.Keep != nil || e.EmitsEvent && !e.Updates()
}

// statements returns the statements that change the rows of keys in the edge. build
// returns the SQL of the last statement. If that SQL returns the number of changed rows,
// the number is scanned into rows.
func (e *Edge) statements(names pgcatalog.Names, keys dml.Keys, rows *int64,
	build func(dml.Keys) (string, []any),
) (all []batch.Statement) {
	if keys.Keep != nil {
		all = append(all, keys.Keep.Begin(names))
	}
	sql, args := build(keys)
	last := batch.Statement{SQL: sql, Args: args}
	if e.countsRows(keys) {
		last.Scan = batch.One(rows)
	}
	return append(all, last)
}
