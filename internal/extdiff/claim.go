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
	// renewals is the number of renewals within the length of a claim. margin is the time
	// before the end of a claim at which the worker stops.
	renewals = 4
	margin   = 5 * time.Second
)

// errLost reports that the claim has passed to another worker or has expired.
var errLost = errors.New("the claim on the diff is lost")

// BusyError reports that another worker holds the diff. It is not a failure.
type BusyError struct {
	DiffID int64
	Holder string
	// Until is the end of the claim unless the claim is renewed. Left is the time from
	// now until Until, by the server's clock.
	Until time.Time
	Left  time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("diff %d is claimed by %s until %s", e.DiffID, e.Holder,
		e.Until.UTC().Format(time.RFC3339))
}

// claim is the right of one worker to write or delete the object of a diff. Its row is in
// "sexton".external_diffs.
//
// An object has one key, and no store has transactions, so a late write of one worker
// could replace the object of another worker that has committed. Three things prevent
// that.
//
// A worker holds a claim for a minute, renews it, and stops before it ends. The diff of a
// killed worker waits for the end of its claim, because late requests may still reach a
// store without conditional writes. A row lock during the upload would need a long
// transaction, which delays vacuum. A session lock does not work through a transaction
// pooler, and it ends with the connection while the upload continues.
//
// The transaction that changes the rows compares the token of the claim under a row lock.
// A worker whose claim has passed to another worker commits nothing.
//
// Each write names the version of the object that it replaces, so the store refuses a
// late request. Stores without conditional writes ignore the version.
//
// A removal claims the diff for 15 minutes, checks that no row refers to the object, and
// deletes it. If it is unknown whether the store has deleted the object, the claim stays
// until its end, because a late deletion could delete a new object.
type claim struct {
	db     database.Database
	diffID int64
	// token is random. Two claims never have the same token, even after a rollback or
	// after the row was deleted.
	token int64
	ttl   time.Duration
	// deadline is the earliest possible end of the claim minus margin, by the monotonic
	// clock.
	deadline time.Time
	// confirmed reports whether a transaction of this worker has locked the claim or is
	// about to lock it. The lock excludes other workers until the transaction ends.
	confirmed atomic.Bool
	// again reports that an earlier try of the move failed because the rows, the object
	// or the claim changed.
	again bool
	// settled reports that the transaction that moved the diff has already ended the
	// claim.
	settled bool
}

// take claims a diff in a transaction, which the caller commits. It returns a *BusyError
// if another worker holds the diff.
func take(ctx context.Context, tx dbsqlc.DBTX, db database.Database, diffID int64, holder string,
	ttl time.Duration,
) (*claim, error) {
	c := &claim{db: db, diffID: diffID, ttl: ttl}
	on := db.Names.Queries(tx)
	busy := &BusyError{DiffID: diffID, Holder: "several workers in turn", Until: time.Now()}
	for range mostTries {
		// The time is taken before the statement is sent, so the deadline can only be too
		// early.
		sentAt := time.Now()
		c.token, c.deadline = rand.Int64(), c.end(sentAt)
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
			// The other claim ended between the two statements, and its row was deleted.
			continue
		case err != nil:
			return nil, fmt.Errorf("query the claim on diff %d: %w", diffID, err)
		}
		busy.Holder, busy.Until, busy.Left = found.Holder, found.Until,
			time.Duration(found.Seconds*float64(time.Second))
		return nil, busy
	}
	return nil, busy
}

// end returns the deadline of a claim that was requested at the time sentAt.
func (c *claim) end(sentAt time.Time) time.Time { return sentAt.Add(c.ttl - min(margin, c.ttl/2)) }

// hold renews the claim until release is called. If the claim is lost, it cancels the
// returned context before the claim ends, with errLost as the cause.
func (c *claim) hold(ctx context.Context) (held context.Context, release func()) {
	held, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.renew(held, cancel)
	}()
	return held, func() {
		cancel(nil)
		<-ended
	}
}

// run calls work with a context that is canceled before the claim ends. Then it
// releases the claim. If the claim was lost, it returns errLost instead of the error of
// work, which only reports the cancellation.
func (c *claim) run(ctx context.Context, work func(held context.Context) error) error {
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

// withClaim claims a diff and calls work under the claim.
func (e *Engine) withClaim(ctx context.Context, diffID int64,
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
	return claimed.run(ctx, func(held context.Context) error { return work(held, claimed) })
}

// renew renews the claim until ctx ends. If the claim is lost, renew calls cancel with
// errLost.
func (c *claim) renew(ctx context.Context, cancel context.CancelCauseFunc) {
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
				continue // A renewal would wait for the transaction that locks the claim.
			}
		}
		sentAt := time.Now()
		bounded, stop := context.WithDeadline(ctx, c.deadline)
		renewed, err := c.db.Queries().DiffRenew(bounded, c.ttl.Seconds(), c.diffID, c.token)
		stop()
		switch {
		case err == nil && renewed == 0 && c.confirmed.Load(): // The transaction has locked or ended the claim.
		case err == nil && renewed == 0:
			cancel(errLost)
			return
		case err == nil:
			c.deadline = c.end(sentAt)
			end.Reset(time.Until(c.deadline))
		}
		// After an error, the next renewal may succeed before the claim ends.
	}
}

// confirm locks the claim in a transaction, or returns errLost. No other worker can take
// the claim before the transaction ends. After that, the caller resets confirmed.
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

// settleTimeout limits cleanup after the end of the caller's context.
const settleTimeout = 5 * time.Second

// settle calls do with a timeout of its own, even if ctx has ended. doing describes the
// call in errors.
func settle(ctx context.Context, db database.Database, doing string,
	do func(context.Context, *dbsqlc.Queries) error,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return problem.Doing(do(ctx, db.Queries()), "%s", doing)
}

// release ends the claim. If that fails, the claim expires.
func (c *claim) release(ctx context.Context) error {
	return settle(ctx, c.db, fmt.Sprintf("release claim on diff %d", c.diffID),
		func(ctx context.Context, on *dbsqlc.Queries) error {
			return on.DiffRelease(ctx, c.diffID, c.token)
		})
}

// quarantine extends the claim without renewals, so that no worker can claim the diff for
// the given time.
func (c *claim) quarantine(ctx context.Context, length time.Duration) error {
	return settle(ctx, c.db, fmt.Sprintf("keep diff %d from being moved", c.diffID),
		func(ctx context.Context, on *dbsqlc.Queries) error {
			return on.DiffQuarantine(ctx, length.Seconds(), c.diffID, c.token)
		})
}
