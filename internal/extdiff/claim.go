package extdiff

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
)

const (
	defaultTTL = time.Minute
	// renewals is how often a claim is renewed within its length; margin is how long before its end its holder stops.
	renewals = 4
	margin   = 5 * time.Second
)

// errLost says that the claim has passed to somebody else or has run out.
var errLost = errors.New("the claim on the diff is lost")

// BusyError says that somebody else works on the diff. It is an ordinary outcome, not a failure.
type BusyError struct {
	DiffID int64
	Holder string
	// Until is when the claim ends, unless it is renewed.
	Until time.Time
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("diff %d is being worked on by %s until %s", e.DiffID, e.Holder, e.Until.UTC().Format(time.RFC3339))
}

// claim is the permission to touch the object of a diff.
type claim struct {
	db     database.Database
	diffID int64
	token  int64
	ttl    time.Duration
	// deadline is monotonic; margin before the claim ends at the earliest.
	deadline time.Time
	// sent counts the bytes of parts that the store has.
	sent atomic.Int64
}

const claimSQL = `
INSERT INTO "sexton".external_diffs AS ledger (diff_id, holder, busy_until)
VALUES ($1, $2, pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3::pg_catalog.float8))
ON CONFLICT (diff_id) DO UPDATE
SET token = ledger.token OPERATOR(pg_catalog.+) 1,
    holder = EXCLUDED.holder,
    busy_until = EXCLUDED.busy_until
WHERE ledger.busy_until IS NULL
   OR ledger.busy_until OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
RETURNING token`

const busySQL = `SELECT coalesce(holder, ''), coalesce(busy_until, pg_catalog.clock_timestamp())
FROM "sexton".external_diffs WHERE diff_id OPERATOR(pg_catalog.=) $1`

// take claims a diff in a transaction, which the caller commits. It returns a *BusyError where somebody else has it.
func take(ctx context.Context, tx dbsqlc.DBTX, db database.Database, diffID int64, holder string, ttl time.Duration) (*claim, error) {
	c := &claim{db: db, diffID: diffID, ttl: ttl}
	busy := &BusyError{DiffID: diffID, Holder: "one after the other", Until: time.Now()}
	for range mostTries {
		// Before the statement is sent, so that the deadline can only be early.
		asked := time.Now()
		err := tx.QueryRow(ctx, db.Names.Render(claimSQL), diffID, holder, ttl.Seconds()).Scan(&c.token)
		if err == nil {
			c.deadline = c.end(asked)
			return c, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("claim diff %d: %w", diffID, err)
		}
		err = tx.QueryRow(ctx, db.Names.Render(busySQL), diffID).Scan(&busy.Holder, &busy.Until)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			// The other's claim ended between the two statements, and its row went with it.
			continue
		case err != nil:
			return nil, fmt.Errorf("look who works on diff %d: %w", diffID, err)
		}
		return nil, busy
	}
	return nil, busy
}

func (c *claim) end(asked time.Time) time.Time { return asked.Add(c.ttl - min(margin, c.ttl/2)) }

const renewSQL = `
UPDATE "sexton".external_diffs
SET busy_until = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3::pg_catalog.float8),
    upload_sent = CASE WHEN upload_id IS NULL THEN upload_sent ELSE $4 END,
    upload_seen_at = CASE WHEN upload_id IS NOT NULL THEN pg_catalog.clock_timestamp() END
WHERE diff_id OPERATOR(pg_catalog.=) $1
  AND token OPERATOR(pg_catalog.=) $2
  AND busy_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()`

// hold renews the claim until release is called. The context that it returns ends before the claim does, with errLost as its
// cause.
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

// lost says that the claim ended under the work, where that is why the work failed: whatever was going on says no more than that it
// was cancelled.
func lost(held context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(held), errLost) {
		return errLost
	}
	return err
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
			cancel(errLost)
			return
		case <-tick.C:
		}
		asked := time.Now()
		bounded, stop := context.WithDeadline(ctx, c.deadline)
		renewed, err := c.db.Pool.Exec(bounded, c.db.Names.Render(renewSQL), c.diffID, c.token, c.ttl.Seconds(), c.sent.Load())
		stop()
		switch {
		case err == nil && renewed.RowsAffected() == 0:
			cancel(errLost)
			return
		case err == nil:
			c.deadline = c.end(asked)
			end.Reset(time.Until(c.deadline))
		}
		// An error may pass before the claim ends.
	}
}

const confirmSQL = `
SELECT FROM "sexton".external_diffs
WHERE diff_id OPERATOR(pg_catalog.=) $1
  AND token OPERATOR(pg_catalog.=) $2
  AND busy_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
FOR UPDATE`

// confirm locks the claim in a transaction, or returns errLost. From then on no other can take it before the transaction ends.
func (c *claim) confirm(ctx context.Context, tx pgx.Tx) error {
	found, err := tx.Exec(ctx, c.db.Names.Render(confirmSQL), c.diffID, c.token)
	switch {
	case err != nil:
		return fmt.Errorf("confirm claim on diff %d: %w", c.diffID, err)
	case found.RowsAffected() == 0:
		return errLost
	}
	return nil
}

// A row that says nothing goes with the claim, and so does that of a deleted diff. Its token begins anew, which is safe: a worker that
// holds an old one is late by a whole claim, and the versions of the rows have the last word.
const releaseSQL = `
WITH idle AS (
    DELETE FROM "sexton".external_diffs
    WHERE diff_id OPERATOR(pg_catalog.=) $1
      AND token OPERATOR(pg_catalog.=) $2
      AND (
          sha256 IS NULL AND skip_reason IS NULL AND upload_id IS NULL AND NOT kept
          OR NOT EXISTS (SELECT FROM "public".merge_request_diffs AS diff WHERE diff.id OPERATOR(pg_catalog.=) $1)
      )
    RETURNING diff_id
)
UPDATE "sexton".external_diffs AS ledger
SET busy_until = NULL, holder = NULL
WHERE ledger.diff_id OPERATOR(pg_catalog.=) $1
  AND ledger.token OPERATOR(pg_catalog.=) $2
  AND NOT EXISTS (SELECT FROM idle)`

// settleTimeout bounds what is done after the caller's context may have ended.
const settleTimeout = 5 * time.Second

// release gives the claim back. Where that fails, it ends by itself.
func (c *claim) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if _, err := c.db.Pool.Exec(ctx, c.db.Names.Render(releaseSQL), c.diffID, c.token); err != nil {
		return fmt.Errorf("release claim on diff %d: %w", c.diffID, err)
	}
	return nil
}

const quarantineSQL = `
UPDATE "sexton".external_diffs
SET busy_until = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3::pg_catalog.float8),
    holder = 'a deletion that may still arrive'
WHERE diff_id OPERATOR(pg_catalog.=) $1
  AND token OPERATOR(pg_catalog.=) $2`

// quarantine keeps everybody from the diff for a while, and ends the claim.
func (c *claim) quarantine(ctx context.Context, length time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if _, err := c.db.Pool.Exec(ctx, c.db.Names.Render(quarantineSQL), c.diffID, c.token, length.Seconds()); err != nil {
		return fmt.Errorf("keep diff %d from being moved: %w", c.diffID, err)
	}
	return nil
}
