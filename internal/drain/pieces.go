package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pace"
)

const (
	// timeSlice limits the time that a session spends on the pieces of one chunk while
	// other chunks wait.
	timeSlice = 250 * time.Millisecond
	// minSlicePieces is the minimum number of pieces per time slice. Over a slow network
	// one piece can take the whole time slice.
	minSlicePieces = 4
	// mostLastWindows limits how often a chunk reads a window that contains all remaining
	// rows. After such a window is changed, rows are left only if a trigger restores
	// them.
	mostLastWindows = 3
)

// limited reports whether the rows of an edge must be changed in pieces: the pass or the
// edge limits the rows of a statement, or each statement scans the table because it lacks
// an index.
func (s *session) limited(e *Edge) bool {
	return !e.remote() && (s.Target <= 0 || e.Limit > 0 || !e.indexed() || s.rowsLeft(e) < unlimited)
}

// rowsPerPiece returns the number of rows that the next piece may change.
func (s *session) rowsPerPiece(e *Edge) int {
	rows := e.Limit
	if s.Target > 0 {
		rows = s.Sizes.get(e.sizeName(), firstRows)
		if e.Limit > 0 {
			rows = min(rows, e.Limit)
		}
	}
	return int(min(int64(rows), s.rowsLeft(e)))
}

// sizeName returns the name under which Sizes stores the rows per piece.
func (e *Edge) sizeName() string { return fmt.Sprintf("%s %d %d", e.Database, e.Leaf.OID, e.Action) }

// learn adjusts the number of rows per piece after a piece with n rows took that time.
func (s *session) learn(e *Edge, n int, took time.Duration) {
	if s.Target > 0 {
		s.Sizes.learn(e.sizeName(), n, took, s.target(), mostRows)
	}
}

// errTooMany is returned if several keys together have more rows than the fixed limit of
// a statement. The chunk is then divided, so that keys with few rows are cleaned up
// first.
var errTooMany = errors.New("more rows than a statement may change")

// edgeDrain changes the rows of a chunk in one edge, in pieces that are addressed by row
// pointer (ctid).
type edgeDrain struct {
	*session

	c     *chunk
	e     *Edge
	began time.Time
	// pieces is the number of pieces that were changed.
	pieces int
	// most limits the rows of a piece. It is reduced while a row that duplicates a row of
	// the target is isolated.
	most int
	// skipDuplicates is set if the statement for the duplicates does not run before
	// further pieces, because it may have timed out.
	skipDuplicates bool
}

// drainEdge changes the rows of a chunk in one edge. It reads a window of row pointers
// and changes their rows in pieces, until no row is left. left reports whether rows may
// be left. If there is no error, these rows are locked, or a trigger restores them.
func (s *session) drainEdge(ctx context.Context, c *chunk, e *Edge) (left bool, err error) {
	switch {
	case e.remote():
		return false, s.drainRemote(ctx, c, e)
	case e.Tree != nil && !e.Updates():
		return false, withEdge(e.Tree(ctx, s.treeSession(), c.tombstones[0], nil), e)
	}
	d := &edgeDrain{session: s, c: c, e: e, began: time.Now(), most: mostRows}
	for lastWindows := 0; lastWindows < mostLastWindows; {
		pointers, last, err := d.readWindow(ctx)
		if err != nil || len(pointers) == 0 {
			return err != nil, err
		}
		changed, err := d.changeWindow(ctx, pointers)
		if err != nil || changed == 0 {
			return true, err
		}
		if last {
			lastWindows++
		}
	}
	return true, nil
}

// checkYield returns ErrYield if the pass ends, if it may change no more rows through the
// edge, or if the time slice has expired and other chunks wait.
func (d *edgeDrain) checkYield(ctx context.Context) error {
	waits, err := d.chunksWait(ctx)
	if err == nil && (d.ended() || d.rowsLeft(d.e) <= 0 || waits && d.pieces >= minSlicePieces &&
		time.Since(d.began) > timeSlice) {
		return ErrYield
	}
	return err
}

// readWindow returns pointers to at most mostRows rows of the chunk. last reports that
// the window has all rows that are left. With fixed sizes, a window of several keys has
// at most as many rows as one statement may change.
func (d *edgeDrain) readWindow(ctx context.Context) (pointers []pgtype.TID, last bool, err error) {
	if d.awaitReplicas(ctx); d.ended() || d.rowsLeft(d.e) <= 0 {
		return nil, false, ErrYield
	}
	limit, rows := mostRows, d.rowsPerPiece(d.e)
	fixed := d.Target <= 0 && len(d.c.tombstones) > 1
	if fixed {
		limit = rows + 1
	}
	keys := d.keys(d.c, d.e)
	keys.CheckParent = !d.c.parent.lives() // A read-only transaction cannot lock the queue.
	sql, args := d.e.Window(d.e.Leaf, "picked.ctid", "", keys, int(min(int64(limit), d.rowsLeft(d.e))))
	_, err = d.run(ctx, d.readLimits(), batch.Statement{
		SQL: sql, Args: args,
		Scan: batch.Collect(&pointers, pgx.RowTo[pgtype.TID]),
	})
	switch {
	case err != nil:
		return nil, false, withEdge(err, d.e)
	case fixed && len(pointers) == limit:
		return nil, false, errTooMany
	case d.Target <= 0 && !d.c.inPieces && len(pointers) > rows:
		// A single key with more rows than one statement may change is large. It yields
		// to the chunks that wait.
		d.c.inPieces = true
		if waits, err := d.chunksWait(ctx); err != nil || waits {
			return nil, false, cmp.Or(err, ErrYield)
		}
	}
	return pointers, len(pointers) < limit, nil
}

// changeWindow changes the rows at pointers, in pieces. It returns the number of changed
// rows.
func (d *edgeDrain) changeWindow(ctx context.Context, pointers []pgtype.TID) (changed int64, _ error) {
	skipLocked := d.blockedNow(d.e)
	for len(pointers) > 0 {
		if err := d.checkYield(ctx); err != nil {
			return changed, err
		}
		n := min(d.rowsPerPiece(d.e), len(pointers), d.most)
		rows, err := d.tryPiece(ctx, pointers[:n], skipLocked)
		if err != nil {
			if err = d.shrinkPiece(n, err); err != nil {
				return changed, err
			}
			continue
		}
		d.learn(d.e, n, d.on.Took())
		d.most = min(2*d.most, mostRows)
		d.pieces++
		changed, pointers = changed+rows, pointers[n:]
	}
	return changed, nil
}

// tryPiece changes the rows at pointers. If some are locked, it skips these. A single row
// that cannot be moved because the target has an equal row is changed by
// Edge.OnDuplicate.
func (d *edgeDrain) tryPiece(ctx context.Context, pointers []pgtype.TID, skipLocked bool) (int64, error) {
	rows, err := d.changePiece(ctx, d.e, pointers, skipLocked)
	if !skipLocked && batch.Judge(err).Lock() {
		skipLocked = true
		rows, err = d.changePiece(ctx, d.e, pointers, skipLocked)
	}
	if len(pointers) > 1 || !d.e.isDuplicate(err) {
		return rows, err
	}
	other := d.e.OnDuplicate
	rows, err = d.changePiece(ctx, other, pointers, skipLocked)
	if batch.Judge(err).Verdict == batch.Timeout && other.Tree != nil {
		return 1, other.Tree(ctx, d.treeSession(), d.c.tombstones[0], pointers)
	}
	return rows, err
}

// shrinkPiece makes further pieces smaller after an error with n rows. If that cannot
// help, it returns the error.
func (d *edgeDrain) shrinkPiece(n int, err error) error {
	timeout := batch.Judge(err).Verdict == batch.Timeout
	switch {
	case errors.Is(err, ErrYield):
		return err
	case n > 1 && d.e.isDuplicate(err):
		d.markDuplicatesFirst(d.c, err)
		d.most = (n + 1) / 2
	case timeout && n > 1 && d.Target > 0:
		d.Sizes.shrink(d.e.sizeName(), n)
	case timeout && n > 1:
		d.e.Limit = n / 2 // No lock is needed, since a pass with fixed sizes has a single session.
	case timeout && !d.skipDuplicates && d.duplicatesFirst(d.e):
		d.skipDuplicates = true // The statement for the duplicates may be the slow one.
	default:
		return withEdge(err, d.e)
	}
	return nil
}

// changePiece changes the rows at pointers by the statement of an edge, in one
// transaction.
func (d *edgeDrain) changePiece(ctx context.Context, e *Edge, pointers []pgtype.TID,
	skipLocked bool,
) (rows int64, err error) {
	// A single row gets the full statement timeout, since nothing smaller can be tried.
	limits := d.on.Limits
	if len(pointers) > 1 && d.Target > 0 {
		limits = d.shortLimits(max(cutoffs*d.target(), 2*shortestCutoff))
	}
	limits.LockTimeout = min(limits.LockTimeout, lockWait)
	limits.Repeatable = !skipLocked
	keys := d.keys(d.c, e)
	var duplicates int64
	var before []batch.Statement
	if !d.skipDuplicates && d.duplicatesFirst(e) {
		before = e.Duplicates.statements(d.on.Names, keys, &duplicates, func(keys dml.Keys) (string, []any) {
			return e.Duplicates.Piece(d.on.Names, e.Leaf, keys, pointers, skipLocked)
		})
	}
	rows, err = d.changeRows(ctx, e, limits, keys, func(keys dml.Keys) (string, []any) {
		return e.Piece(d.on.Names, e.Leaf, keys, pointers, skipLocked)
	}, before...)
	if err != nil {
		return 0, err
	}
	d.reportChanged(ctx, d.c, e, rows)
	if duplicates > 0 {
		d.reportChanged(ctx, d.c, e.Duplicates, duplicates)
	}
	return rows + duplicates, nil
}

// changeRows runs one transaction: the statements in before, then the statements of
// build. It returns the number of rows that the latter changed.
func (s *session) changeRows(
	ctx context.Context, e *Edge, limits batch.Limits, keys dml.Keys, build func(dml.Keys) (string, []any),
	before ...batch.Statement,
) (rows int64, err error) {
	affected, err := s.run(ctx, limits, append(before, e.statements(s.on.Names, keys, &rows, build)...)...)
	if err == nil && !e.countsRows(keys) {
		rows = affected[len(affected)-1]
	}
	return rows, err
}

// isDuplicate reports whether err means that a row cannot be moved because the target
// already has an equal row.
func (e *Edge) isDuplicate(err error) bool {
	return e.OnDuplicate != nil && batch.DuplicateIn(err, e.Child, e.Leaf)
}

// isDuplicate reports whether err means that a row of one of the parent's edges cannot be
// moved because the target already has an equal row.
func (p *Parent) isDuplicate(err error) bool {
	return slices.ContainsFunc(p.Edges, func(e *Edge) bool { return e.isDuplicate(err) })
}

// markDuplicatesFirst makes Edge.Duplicates run before all further moves of each edge in
// which err found a duplicate. It returns false if it changed nothing, so that a retry
// would fail again.
func (s *session) markDuplicatesFirst(c *chunk, err error) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range c.parent.Edges {
		if e.isDuplicate(err) && e.Duplicates != nil && !e.duplicatesFirst {
			e.duplicatesFirst, again = true, true
		}
	}
	return again
}

// duplicatesFirst reports whether Edge.Duplicates runs before each move of the edge.
func (p *Pass) duplicatesFirst(e *Edge) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return e.duplicatesFirst
}

// treeSession returns the session that Parent.Tree and Edge.Tree use.
func (s *session) treeSession() *TreeSession {
	began := time.Now()
	return &TreeSession{
		On: s.on,
		Pace: &pace.Run{
			Until: s.Pace.Until, Stop: s.Pace.Stop, Ended: s.ended, Target: s.Target, Waits: s.Pace.Waits,
			Throttle: pace.Throttle{Blocker: s.Pace.Blocker},
		},
		Send: func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
			_, err := s.run(ctx, limits, statements...)
			return err
		},
		Yields: func(ctx context.Context) bool {
			s.awaitReplicas(ctx)
			waits, err := s.chunksWait(ctx)
			return err != nil || s.ended() || waits && time.Since(began) > timeSlice
		},
	}
}
