package extdiff

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

const (
	defaultTTL = time.Minute
	// renewals is how often a claim is renewed within its length; margin is how long
	// before its end its holder stops.
	renewals = 4
	margin   = 5 * time.Second
)

// errLost says that the claim has passed to another worker or has run out.
var errLost = errors.New("the claim on the diff is lost")

// BusyError says that another worker has the diff. It is an ordinary outcome, not a
// failure.
type BusyError struct {
	DiffID int64
	Holder string
	// Until is when the claim ends, unless it is renewed, and Left the time until then by
	// the server's clock.
	Until time.Time
	Left  time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("diff %d is being worked on by %s until %s", e.DiffID, e.Holder,
		e.Until.UTC().Format(time.RFC3339))
}

// claim is the permission to touch the object of a diff.
type claim struct {
	db     database.Database
	diffID int64
	// token is random, so that no two claims have the same: neither one that was rolled
	// back and the next one, nor those before and after a row that has gone.
	token int64
	ttl   time.Duration
	// deadline is monotonic; margin before the claim ends at the earliest.
	deadline time.Time
	// confirmed reports that a transaction is under way that has locked the claim, or is
	// about to. Its lock keeps others out until its end.
	confirmed atomic.Bool
	// again reports that an earlier try has found the rows or the object changed.
	again bool
	// settled reports that the transaction that moved the diff has ended the claim.
	settled bool
}

// take claims a diff in a transaction, which the caller commits. It returns a *BusyError
// where another worker has it.
func take(ctx context.Context, tx dbsqlc.DBTX, db database.Database, diffID int64, holder string,
	ttl time.Duration,
) (*claim, error) {
	c := &claim{db: db, diffID: diffID, ttl: ttl}
	on := db.Names.Queries(tx)
	busy := &BusyError{DiffID: diffID, Holder: "one after the other", Until: time.Now()}
	for range mostTries {
		// Before the statement is sent, so that the deadline can only be early.
		asked := time.Now()
		c.token, c.deadline = rand.Int64(), c.end(asked)
		taken, err := on.DiffClaim(ctx, diffID, c.token, holder, ttl.Seconds())
		if err != nil {
			return nil, fmt.Errorf("claim diff %d: %w", diffID, err)
		}
		if taken > 0 {
			return c, nil
		}
		found, err := on.DiffBusy(ctx, diffID)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			// The other's claim ended between the two statements, and its row went with
			// it.
			continue
		case err != nil:
			return nil, fmt.Errorf("look who works on diff %d: %w", diffID, err)
		}
		busy.Holder, busy.Until, busy.Left = found.Holder, found.Until,
			time.Duration(found.Seconds*float64(time.Second))
		return nil, busy
	}
	return nil, busy
}

func (c *claim) end(asked time.Time) time.Time { return asked.Add(c.ttl - min(margin, c.ttl/2)) }

// hold renews the claim until release is called. The context that it returns ends before
// the claim does, with errLost as its cause.
func (c *claim) hold(ctx context.Context) (held context.Context, release func()) {
	held, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.keep(held, cancel)
	}()
	return held, func() {
		cancel(nil)
		<-ended
	}
}

// under does work that ends before the claim does, and gives the claim back. The error is
// errLost where the claim ended under the work: whatever was going on says no more than
// that it was cancelled.
func (c *claim) under(ctx context.Context, work func(held context.Context) error) error {
	held, release := c.hold(ctx)
	err := work(held)
	if err != nil && errors.Is(context.Cause(held), errLost) {
		err = errLost
	}
	release()
	if c.settled {
		return err
	}
	return errors.Join(err, c.release(ctx))
}

// claimed does work on the object of a diff under its claim.
func (e *Engine) claimed(ctx context.Context, diffID int64,
	work func(held context.Context, claimed *claim) error,
) error {
	if err := e.Owner.Check(ctx); err != nil {
		return err
	}
	claimed, err := take(ctx, e.DB.Pool, e.DB, diffID, e.Holder, e.ttl())
	if err != nil {
		return err
	}
	e.reach(PointClaimed)
	return claimed.under(ctx, func(held context.Context) error { return work(held, claimed) })
}

func (c *claim) keep(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(c.ttl / renewals)
	defer tick.Stop()
	end := time.NewTimer(time.Until(c.deadline))
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			if !c.confirmed.Load() {
				cancel(errLost)
				return
			}
			end.Reset(c.ttl / renewals)
			continue
		case <-tick.C:
			if c.confirmed.Load() {
				continue // A renewal would wait for that transaction.
			}
		}
		asked := time.Now()
		bounded, stop := context.WithDeadline(ctx, c.deadline)
		renewed, err := c.db.Queries().DiffRenew(bounded, c.ttl.Seconds(), c.diffID, c.token)
		stop()
		switch {
		case err == nil && renewed == 0 && c.confirmed.Load(): // The transaction knows better, or has ended the claim.
		case err == nil && renewed == 0:
			cancel(errLost)
			return
		case err == nil:
			c.deadline = c.end(asked)
			end.Reset(time.Until(c.deadline))
		}
		// An error may pass before the claim ends.
	}
}

// confirm locks the claim in a transaction, or returns errLost. From then on no other can
// take it before the transaction ends, however long that takes. The caller sets confirmed
// back after it.
func (c *claim) confirm(ctx context.Context, tx pgx.Tx) error {
	c.confirmed.Store(true)
	found, err := c.db.Names.Queries(tx).DiffConfirm(ctx, c.diffID, c.token)
	switch {
	case err != nil:
		return fmt.Errorf("confirm claim on diff %d: %w", c.diffID, err)
	case found == 0:
		return errLost
	}
	return nil
}

// settleTimeout bounds what is done after the caller's context may have ended.
const settleTimeout = 5 * time.Second

// settle does what is to be done after the caller's context may have ended; errors say
// what that is.
func settle(ctx context.Context, db database.Database, doing string,
	do func(context.Context, *dbsqlc.Queries) error,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return problem.Doing(do(ctx, db.Queries()), "%s", doing)
}

// release gives the claim back. Where that fails, it ends by itself.
func (c *claim) release(ctx context.Context) error {
	return settle(ctx, c.db, fmt.Sprintf("release claim on diff %d", c.diffID),
		func(ctx context.Context, on *dbsqlc.Queries) error {
			return on.DiffRelease(ctx, c.diffID, c.token)
		})
}

// quarantine keeps all workers from the diff for a while, and ends the claim.
func (c *claim) quarantine(ctx context.Context, length time.Duration) error {
	return settle(ctx, c.db, fmt.Sprintf("keep diff %d from being moved", c.diffID),
		func(ctx context.Context, on *dbsqlc.Queries) error {
			return on.DiffQuarantine(ctx, length.Seconds(), c.diffID, c.token)
		})
}
