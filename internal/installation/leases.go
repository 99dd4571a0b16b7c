package installation

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/audittrail"
	"sexton/internal/dbsqlc"
)

// EndedLease is the document of `sexton lease release --json`.
type EndedLease struct {
	Key string `json:"key"`
	// Released is false if the lease was free.
	Released bool   `json:"released"`
	Holder   string `json:"holder,omitempty"`
}

// EndLease ends a lease whose holder is gone or, with force, alive, and records who did it. It calls warn for each database that is down:
// there the holder can go on.
func (c *Connections) EndLease(ctx context.Context, key string, force bool, warn func(down error)) (EndedLease, error) {
	done := EndedLease{Key: key}
	err := pgx.BeginFunc(ctx, c.Jobs().Pool, func(tx pgx.Tx) error {
		queries, silence := c.Jobs().Names.Queries(tx), c.Config.Jobs.Silence.Seconds()
		held, err := queries.LeaseEnd(ctx, dbsqlc.LeaseEndParams{Key: key, Force: force, SilenceSeconds: silence})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return knownLease(ctx, queries, key)
		case err != nil:
			return fmt.Errorf("release lease %s: %w", key, err)
		case !held.Ended:
			return fmt.Errorf("release lease %s: its holder %s is alive; --force ends it all the same, and its pass fails", key, held.Holder)
		}
		done.Released, done.Holder = true, held.Holder
		if err := c.raiseFences(ctx, queries, dbsqlc.FenceRaiseParams{Key: key, Token: held.Token, LockTimeout: fenceTimeout}, warn); err != nil {
			return err
		}
		return audittrail.Record(ctx, c.Jobs(), tx, audittrail.Entry{Actor: Actor(), Action: "release", Target: key, Reason: "held by " + held.Holder})
	})
	return done, err
}

// knownLease returns an error where no lease ever had the key.
func knownLease(ctx context.Context, queries *dbsqlc.Queries, key string) error {
	_, err := queries.LeaseLook(ctx, key)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("release lease %q: there is no lease with this key; `sexton lease list` shows the leases that are held", key)
	case err != nil:
		return fmt.Errorf("look at lease %s: %w", key, err)
	}
	return nil
}

// fenceTimeout is how long a release waits for a batch of the former holder, which holds its fence until it commits. The server ends
// one that hangs after 10 s.
const fenceTimeout = "20s"

// raiseFences has every database refuse the batches of a lease's former holder: that one never asks whether the lease is still its
// own. The jobs database takes part in the transaction that ends the lease, so that a failure leaves the lease as it was.
func (c *Connections) raiseFences(ctx context.Context, jobs *dbsqlc.Queries, fence dbsqlc.FenceRaiseParams, warn func(down error)) error {
	for _, db := range c.Databases {
		if down := c.Down[db.Name]; down != nil {
			warn(down)
			continue
		}
		queries := db.Queries()
		if db.Name == c.Config.Jobs.Database {
			queries = jobs
		}
		if _, err := queries.FenceRaise(ctx, fence); err != nil {
			return fmt.Errorf("release lease %s: raise its fence in database %s: %w", fence.Key, db.Name, err)
		}
	}
	return nil
}
