package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
)

const (
	// slice is how long a session works on the pieces of one chunk while other chunks
	// wait.
	slice = 250 * time.Millisecond
	// slicePieces is the minimum number of pieces per slice. Over a slow network one
	// piece can take the whole slice.
	slicePieces = 4
	// mostWindows limits how often all rows of a chunk are read again because rows
	// reappear.
	mostWindows = 3
	// awaitRows is the number of locked rows that one transaction waits for.
	awaitRows = 10
)

// slow reports whether rows of the edge must be changed in pieces. That is so if the pass
// or the edge limits the rows of a statement, or if each statement scans the table.
func (s *session) slow(e *Edge) bool {
	return !e.remote() && (s.Target <= 0 || e.Limit > 0 || !e.indexed() || s.left(e) < unlimited)
}

// rowsPerPiece returns the number of rows of the next piece.
func (s *session) rowsPerPiece(e *Edge) int {
	rows := e.Limit
	if s.Target > 0 {
		rows = s.Sizes.get(e.sizeName(), firstRows)
		if e.Limit > 0 {
			rows = min(rows, e.Limit)
		}
	}
	return int(min(int64(rows), s.left(e)))
}

func (e *Edge) sizeName() string { return fmt.Sprintf("%s %d %d", e.Database, e.Leaf.OID, e.Action) }

// pieces changes the rows of a chunk in one edge, by row pointer. It reads a window of
// pointers and changes their rows in pieces, until no row is left. If it returns no
// error, only locked rows can be left. left reports whether rows may be left.
func (s *session) pieces(ctx context.Context, c *chunk, e *Edge) (left bool, err error) {
	switch {
	case e.remote():
		return false, s.drainRemote(ctx, c, e)
	case e.Tree != nil && !e.Updates():
		return false, edgeErr(e.Tree(ctx, s.tree(), c.tombstones[0], nil), e)
	}
	began, done, fixed := time.Now(), 0, s.Target <= 0 && len(c.tombstones) > 1
	most, double := mostRows, true
	for last := 0; last < mostWindows; {
		if s.awaitReplicas(ctx); s.ended() || s.left(e) <= 0 {
			return true, ErrYield
		}
		limit := mostRows
		if fixed {
			limit = s.rowsPerPiece(e) + 1
		}
		pointers, err := s.window(ctx, c, e, limit)
		switch {
		case err != nil || len(pointers) == 0:
			return err != nil, err
		case fixed && len(pointers) == limit:
			return true, errTooMany // The parents with few rows are cleaned up first.
		case s.Target <= 0 && !c.heavy && len(pointers) > s.rowsPerPiece(e):
			c.heavy = true
			if waits, err := s.waiting(ctx); err != nil || waits {
				return true, cmp.Or(err, ErrYield)
			}
		case len(pointers) < limit:
			last++ // This window has the last rows, unless a trigger restores some.
		}
		skip := s.blockedNow(e)
		var changed int64
		for len(pointers) > 0 {
			waits, err := s.waiting(ctx)
			if err != nil {
				return true, err
			}
			if s.ended() || s.left(e) <= 0 || waits && done >= slicePieces && time.Since(began) > slice {
				return true, ErrYield
			}
			n := min(s.rowsPerPiece(e), len(pointers), most)
			rows, err := s.piece(ctx, c, e, pointers[:n], skip, double)
			if !skip && batch.Judge(err).Lock() {
				rows, err = s.piece(ctx, c, e, pointers[:n], true, double)
			}
			if n == 1 && e.duplicate(err) {
				rows, err = s.otherwise(ctx, c, e, pointers[:1], skip)
			}
			switch f := batch.Judge(err); {
			case err == nil:
				if s.Target > 0 {
					s.Sizes.learn(e.sizeName(), n, s.on.Took(), s.target(), mostRows)
				}
				most = min(2*most, mostRows)
				changed += rows
				done++
				pointers = pointers[n:]
			case errors.Is(err, ErrYield):
				return true, err
			case n > 1 && e.duplicate(err):
				s.doubles(c, err)
				most = (n + 1) / 2
			case f.Verdict == batch.Timeout && n > 1 && s.Target > 0:
				s.Sizes.shrink(e.sizeName(), n)
			case f.Verdict == batch.Timeout && n > 1:
				e.Limit = n / 2 // For the rest of the pass. It has a single session if sizes are fixed.
			case f.Verdict == batch.Timeout && double && s.doubled(e):
				double = false // The statement for the duplicates may be the slow one.
			default:
				return true, &edgeError{err, e}
			}
		}
		if changed == 0 {
			return true, nil
		}
	}
	return true, nil
}

// otherwise changes a single row that cannot be moved because the target has an equal
// row.
func (s *session) otherwise(ctx context.Context, c *chunk, e *Edge, pointer []pgtype.TID, skip bool) (int64, error) {
	rows, err := s.piece(ctx, c, e.Otherwise, pointer, skip, false)
	if batch.Judge(err).Verdict == batch.Timeout && e.Otherwise.Tree != nil {
		return 1, e.Otherwise.Tree(ctx, s.tree(), c.tombstones[0], pointer)
	}
	return rows, err
}

// window returns pointers to at most limit rows of the chunk.
func (s *session) window(ctx context.Context, c *chunk, e *Edge, limit int) (pointers []pgtype.TID, err error) {
	limits := s.on.Limits
	limits.LockTimeout, limits.Reads = min(limits.LockTimeout, lockWait), true
	keys := e.keys(c)
	keys.Gone = !c.parent.lives() // A read-only transaction cannot lock the queue.
	sql, args := e.Window(e.Leaf, "picked.ctid", "", keys, int(min(int64(limit), s.left(e))))
	_, err = s.run(ctx, limits, batch.Statement{SQL: dml.IndexScans},
		batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&pointers, pgx.RowTo[pgtype.TID])})
	if err != nil {
		return nil, &edgeError{err, e}
	}
	return pointers, nil
}

// piece changes the rows at pointers. With skip it skips rows that other sessions have
// locked. With double it first changes the duplicates, if the edge has met some.
func (s *session) piece(ctx context.Context, c *chunk, e *Edge, pointers []pgtype.TID, skip, double bool) (rows int64, err error) {
	limits := s.on.Limits
	if len(pointers) > 1 && s.Target > 0 {
		limits = s.short(max(cutoffs*s.target(), 2*shortestCutoff))
	}
	limits.LockTimeout = min(limits.LockTimeout, lockWait)
	limits.Repeatable = !skip
	keys := e.keys(c)
	var doubles int64
	var before []batch.Statement
	if double && s.doubled(e) {
		before = e.Double.statements(s.on.Names, keys, &doubles, func(keys dml.Keys) (string, []any) {
			return e.Double.Piece(s.on.Names, e.Leaf, keys, pointers, skip)
		})
	}
	rows, err = s.change(ctx, e, limits, keys, func(keys dml.Keys) (string, []any) {
		return e.Piece(s.on.Names, e.Leaf, keys, pointers, skip)
	}, before...)
	if err == nil {
		s.count(ctx, c, e, rows)
	}
	if doubles > 0 {
		s.count(ctx, c, e.Double, doubles)
	}
	return rows + doubles, err
}

// change runs the statements before and then the ones that build returns. It returns the
// number of changed rows.
func (s *session) change(
	ctx context.Context, e *Edge, limits batch.Limits, keys dml.Keys, build func(dml.Keys) (string, []any), before ...batch.Statement,
) (rows int64, err error) {
	affected, err := s.run(ctx, limits, append(before, e.statements(s.on.Names, keys, &rows, build)...)...)
	if err == nil && !e.counts(keys) {
		rows = affected[len(affected)-1]
	}
	return rows, err
}

// await changes the rows of an edge that other sessions have locked, a few at a time. It
// first locks them with SELECT FOR UPDATE, which gets its turn even if other sessions
// update the row all the time. The statement after it has a newer snapshot and checks the
// parent in it. If the lock is not released in time, await returns the name of its
// holder.
func (s *session) await(ctx context.Context, c *chunk, e *Edge) (holder string, err error) {
	limits := s.on.Limits
	if s.blockedNow(e) { // Another session has just waited for it and timed out.
		limits.LockTimeout = min(limits.LockTimeout, lockWait)
	}
	for {
		if s.ended() || s.left(e) <= 0 {
			return "", ErrYield
		}
		keys := e.keys(c)
		lock, lockArgs := e.Window(e.Leaf, "", e.Lock(), keys, awaitRows)
		end := s.watch(ctx, e)
		rows, err := s.change(ctx, e, limits, keys, func(keys dml.Keys) (string, []any) {
			return e.CleanStatement(s.on.Names, e.Leaf, keys, awaitRows)
		}, batch.Statement{SQL: lock, Args: lockArgs})
		holder = end()
		if err != nil {
			return holder, &edgeError{err, e}
		}
		s.count(ctx, c, e, rows)
		if rows < awaitRows {
			return "", nil
		}
	}
}

// awaitParent locks the parent's row, which may have to wait. If that takes too long, it
// returns the name of the lock's holder.
func (s *session) awaitParent(ctx context.Context, c *chunk) (holder string, err error) {
	sql, args := c.parent.Lock(c.keys())
	end := s.watch(ctx, &Edge{})
	_, err = s.run(ctx, s.on.Limits, batch.Statement{SQL: sql, Args: args})
	return end(), err
}

// drainRemote changes the rows of a chunk in another database. No snapshot covers both
// the parent and the child there. So it reads the children, then checks that the parents
// are deleted, and then changes exactly the row versions that it read. If another session
// inserts the parent meanwhile and makes an old child reference it, that row has a new
// version and is skipped.
func (s *session) drainRemote(ctx context.Context, c *chunk, e *Edge) error {
	began := time.Now()
	lock, vain := e.Lock()+" SKIP LOCKED", 0
	for {
		if waits, err := s.waiting(ctx); err != nil || s.ended() || s.left(e) <= 0 || waits && time.Since(began) > slice {
			if err != nil {
				return err
			}
			return ErrYield
		}
		gone, err := s.gone(ctx, c, c.keys())
		if err != nil {
			return err
		}
		limits, rows := s.on.Limits, s.rowsPerPiece(e)
		var seen dml.Rows
		sql, args := e.Window(e.Leaf, "picked.ctid, picked.xmin", "", dml.Keys{Of: c.parent.Key, Values: gone}, rows)
		_, err = s.runIn(ctx, e, limits, batch.Statement{SQL: sql, Args: args, Scan: batch.Collect((*[]dml.Row)(&seen), dml.ScanRow)})
		if err != nil || len(seen) == 0 {
			return edgeErr(err, e)
		}
		if gone, err = s.gone(ctx, c, gone); err != nil {
			return err
		}
		keys := e.keys(c)
		keys.Values = gone
		names := s.on.Names
		if remote := s.remote(e); remote != nil {
			names = remote.Names
		}
		var counted int64
		statements := e.statements(names, keys, &counted, func(keys dml.Keys) (string, []any) {
			return e.ExactStatement(names, e.Leaf, keys, seen, lock)
		})
		end := func() string { return "" }
		if lock == e.Lock() {
			end = s.watch(ctx, e)
		}
		affected, err := s.runIn(ctx, e, limits, statements...)
		err = batch.AddBlocker(err, end())
		if err == nil && !e.counts(keys) {
			counted = affected[len(affected)-1]
		}
		switch {
		case batch.Judge(err).Verdict == batch.Timeout && len(seen) > 1:
			s.Sizes.shrink(e.sizeName(), len(seen))
			continue
		case err != nil:
			return edgeErr(err, e)
		}
		s.count(ctx, c, e, counted)
		if s.Target > 0 {
			s.Sizes.learn(e.sizeName(), len(seen), s.took(e), s.target(), mostRows)
		}
		if counted == 0 {
			if vain++; vain > mostWindows {
				return &edgeError{&batch.FaultError{Fault: batch.Fault{Message: KeptRows, Verdict: batch.Row}}, e}
			}
			lock = e.Lock() // Only locked rows are left: wait for them.
		}
	}
}

func edgeErr(err error, e *Edge) error {
	if err == nil {
		return nil
	}
	return &edgeError{err, e}
}

// gone returns the keys without a row.
func (s *session) gone(ctx context.Context, c *chunk, keys any) (any, error) {
	sql, args := c.parent.Gone(keys)
	limits := s.on.Limits
	limits.Reads = true
	if c.parent.Integer {
		found := []int64{}
		_, err := s.run(ctx, limits, batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&found, pgx.RowTo[int64])})
		return found, err
	}
	found := []string{}
	_, err := s.run(ctx, limits, batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&found, pgx.RowTo[string])})
	return found, err
}

// SQLSTATEs that make an edge keep its rows differently. The function undo_set raises
// otherColumns if the table's columns have changed, rowTooLarge if a row is too large to
// keep, and rowsApart if a statement must read the rows before another one deletes them.
// Postgres raises notWithRules if a statement that keeps rows changes a table with rules.
const otherColumns, rowTooLarge, rowsApart, notWithRules = "SX005", "SX006", "SX008", "0A000"

// keepsApart handles an error that is caused by keeping rows. It reports whether it
// changed how the edge keeps them, so that a retry makes sense.
func (s *session) keepsApart(ctx context.Context, e *Edge, f batch.Fault) bool {
	s.mu.Lock()
	keep := e.Keep
	s.mu.Unlock()
	switch {
	case keep == nil:
		return false
	case f.SQLState == rowsApart && !keep.Apart:
		keep.Apart = true
		return true
	case f.SQLState != notWithRules || keep.Ruled:
		return false
	}
	var ruled bool
	limits := s.on.Limits
	limits.Own = true
	_, err := s.runIn(ctx, e, limits, batch.Statement{
		SQL:  `SELECT EXISTS (SELECT FROM pg_catalog.pg_rewrite AS rule WHERE rule.ev_class OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.oid[]))`,
		Args: []any{[]uint32{e.Leaf.OID, e.Child.OID}}, Scan: batch.One(&ruled),
	})
	if ruled {
		keep.Apart, keep.Ruled = true, true
	}
	return err == nil && ruled
}

// indexFix returns the statement that creates the missing index.
func (e *Edge) indexFix() string {
	return fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s)", e.Leaf.SQL(), pgcatalog.QuoteAll(e.Columns))
}
