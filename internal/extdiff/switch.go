package extdiff

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/blobstore"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

func (e *Engine) bound(ctx context.Context, tx pgx.Tx, each time.Duration) error {
	_, err := tx.Exec(ctx, e.boundStatement(), e.boundArgs(each)...)
	return problem.Doing(err, "bound transaction")
}

func (e *Engine) boundStatement() string { return e.DB.Names.Render(statement("bound")) }

func (e *Engine) boundArgs(each time.Duration) []any {
	return []any{each.Milliseconds(), e.Limits.orDefaults().Lock.Milliseconds(), e.DB.Names.Path}
}

// transact runs a short transaction.
func (e *Engine) transact(ctx context.Context, do func(tx pgx.Tx) error) error {
	return database.Write(ctx, e.DB.Pool, func(tx pgx.Tx) error {
		if err := e.bound(ctx, tx, e.Limits.orDefaults().Statement); err != nil {
			return err
		}
		return do(tx)
	})
}

// finish takes the texts out of the database, if the rows are still the ones that were read: with the diffs of other workers of this
// process, or alone where it does not go with them. A diff that has been deleted meanwhile leaves its object to the removal.
func (e *Engine) finish(ctx context.Context, claimed *claim, was look, surveyed survey, digest blobstore.Digest) (Skip, error) {
	s := &switching{engine: e, claim: claimed, was: was, surveyed: surveyed, digest: digest, turn: make(chan bool, 1)}
	if e.Switches.together(ctx, s) {
		return s.skipped, nil
	}
	err := e.switchAll(ctx, []*switching{s}, true)
	return s.skipped, err
}

// mostTogether bounds the diffs of one transaction.
const mostTogether = 16

// Switches has diffs that are ready at the same time change in one transaction. The zero value is ready to use, nil has each change
// alone. It is safe for concurrent use.
type Switches struct {
	mu sync.Mutex
	// busy reports that a transaction is under way; waiting are the diffs of the next ones.
	busy    bool
	waiting []*switching
}

// switching is a diff whose object is known to be good.
type switching struct {
	engine   *Engine
	claim    *claim
	was      look
	surveyed survey
	digest   blobstore.Digest

	// turn gets true where the diff leads the next transaction, false after one that it was in.
	turn    chan bool
	skipped Skip
}

// together changes a diff in the next transaction, which the first diff in the queue leads. It reports whether that has changed
// the diff: one whose rows are locked or have changed, or whose transaction failed, goes on alone, so that it stops no other.
func (w *Switches) together(ctx context.Context, s *switching) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	w.waiting = append(w.waiting, s)
	leads := !w.busy
	w.busy = true
	w.mu.Unlock()
	// The transaction under way is bounded, so this wait is.
	if !leads && !<-s.turn {
		return s.claim.settled
	}
	w.mu.Lock()
	n := min(len(w.waiting), mostTogether)
	group := slices.Clone(w.waiting[:n])
	w.waiting = slices.Delete(w.waiting, 0, n)
	w.mu.Unlock()
	defer func() {
		for _, other := range group[1:] {
			other.turn <- false
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.busy = len(w.waiting) > 0; w.busy {
			w.waiting[0].turn <- true
		}
	}()
	_ = s.engine.switchAll(ctx, group, false) // An error may be that of another, and comes again to the one that is its own.
	return s.claim.settled
}

// switchAll changes diffs in one transaction. One alone waits for locks and is decided on; otherwise it leaves out each that is
// locked or has changed.
func (e *Engine) switchAll(ctx context.Context, group []*switching, alone bool) error {
	var good []*switching
	err := e.transact(ctx, func(tx pgx.Tx) (err error) {
		if good, err = e.lockAll(ctx, tx, group, alone); err == nil && len(good) > 0 {
			err = e.change(ctx, tx, good)
		}
		return err
	})
	for _, s := range group {
		s.claim.confirmed.Store(false)
	}
	if err != nil {
		return err
	}
	for _, s := range good {
		s.claim.settled = true
	}
	return nil
}

// queue collects statements that are sent together. Their results are read when all are sent.
type queue struct {
	dbsqlc.DBTX
	pgx.Batch
}

// Exec implements dbsqlc.DBTX. What it returns says nothing.
func (q *queue) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	q.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// lockAll confirms the claims, locks the rows and returns the diffs that may change. The statements of all are sent together.
func (e *Engine) lockAll(ctx context.Context, tx pgx.Tx, group []*switching, alone bool) ([]*switching, error) {
	skip := ""
	if !alone {
		skip = " SKIP LOCKED"
	}
	var q queue
	on := e.DB.Names.Queries(&q)
	files := e.DB.Names.Render(statement("lock_files", "skip_locked", skip))
	for _, s := range group {
		// As confirm does; for the error see Exec.
		s.claim.confirmed.Store(true)
		_, _ = on.DiffConfirm(ctx, s.was.diffID, s.claim.token)
		// It also keeps rows of files from coming in, whose foreign key wants a lock on this row.
		q.Queue(s.engine.lookStatement("FOR UPDATE OF diff"+skip), s.was.diffID)
		q.Queue(files, s.was.diffID)
	}
	results := tx.SendBatch(ctx, &q.Batch)
	defer func() { _ = results.Close() }() // An error has been seen by then.
	var good []*switching
	for _, s := range group {
		held, err := results.Exec()
		if err != nil {
			return nil, fmt.Errorf("confirm claim on diff %d: %w", s.was.diffID, err)
		}
		found, err := scanLook(results.QueryRow(), s.was.diffID)
		if err != nil {
			return nil, err
		}
		var fingerprint string
		if err := results.QueryRow().Scan(&fingerprint); err != nil {
			return nil, fmt.Errorf("lock files: %w", err)
		}
		changed := found.mergeRequestID != s.was.mergeRequestID || fingerprint != s.surveyed.fingerprint
		switch {
		case held.RowsAffected() == 1 && found.skip == "" && !changed:
			good = append(good, s)
		case !alone:
		case held.RowsAffected() == 0:
			return nil, errLost
		case found.skip == "":
			return nil, errChanged
		case found.skip == Gone:
			if err := results.Close(); err != nil {
				return nil, fmt.Errorf("lock diff: %w", err)
			}
			s.skipped = Gone
			key := Key(s.was.mergeRequestID, s.was.diffID)
			return nil, e.DB.Names.Queries(tx).DiffOrphan(ctx, s.was.diffID, key, int(s.engine.Store.Kind()))
		default:
			s.skipped = found.skip
		}
	}
	return good, nil
}

// change puts offsets and sizes in place of the texts. The statements of all diffs are sent together.
func (e *Engine) change(ctx context.Context, tx pgx.Tx, good []*switching) error {
	var owned bool
	if err := tx.QueryRow(ctx, e.DB.Names.Render(statement("owned"))).Scan(&owned); err != nil {
		return fmt.Errorf("look whether files have a project: %w", err)
	}
	project := ""
	if owned {
		project = "{with_project}"
	}
	sql := e.DB.Names.Render(statement("switch", "project", project))
	var q queue
	on := e.DB.Names.Queries(&q)
	for _, s := range good {
		id := s.was.diffID
		q.Queue(sql, id)
		// The queue takes them without an error.
		_ = on.DiffStepBack(ctx, id)
		_ = on.DiffMark(ctx, objectName(id), int(s.engine.Store.Kind()), s.surveyed.files, id)
		_ = on.DiffSettle(ctx, s.digest.Size, s.digest.SHA256[:], id, s.claim.token)
	}
	results := tx.SendBatch(ctx, &q.Batch)
	defer func() { _ = results.Close() }() // An error has been seen by then.
	for _, s := range good {
		switched, err := results.Exec()
		if err != nil {
			return fmt.Errorf("take texts out of the database: %w", err)
		}
		if switched.RowsAffected() != s.surveyed.files {
			return fmt.Errorf("take texts out of the database: %d of %d files changed", switched.RowsAffected(), s.surveyed.files)
		}
		for _, doing := range []string{"put files in order", "mark diff as external", "note what was moved"} {
			if _, err := results.Exec(); err != nil {
				return fmt.Errorf("%s: %w", doing, err)
			}
		}
	}
	if err := results.Close(); err != nil {
		return fmt.Errorf("take texts out of the database: %w", err)
	}
	for _, s := range good {
		s.engine.reach(PointSwitched)
	}
	return nil
}

// record notes why a diff stays in the database and what it was like, if that is a reason to look after it.
func (e *Engine) record(ctx context.Context, claimed *claim, reason Skip, state string) error {
	switch reason {
	case TooLarge, FilesMissing, Inconsistent:
	case Gone, External, NotDue, Kept:
		return nil
	}
	err := e.DB.Queries().DiffSkip(ctx, string(reason), state, claimed.diffID, claimed.token)
	return problem.Doing(err, "note that diff %d stays in the database", claimed.diffID)
}
