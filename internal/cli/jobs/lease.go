package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"sexton/internal/audittrail"
	"sexton/internal/cli"
	"sexton/internal/dbsqlc"
	"sexton/internal/installation"
	"sexton/internal/operator"
)

func leaseCommand(env *cli.Env) *cobra.Command {
	return cli.Group("lease", "Show who holds which lease, and end one whose holder is gone", "  sexton lease list",
		leaseListCommand(env), leaseReleaseCommand(env))
}

func leaseListCommand(env *cli.Env) *cobra.Command {
	return env.Reports(&cobra.Command{
		Use:   "list",
		Short: "List the leases that are held",
		Long: `Lists the leases that are held. A lease lets one pass at a time work: the next one of the same KEY skips or waits until it ends.
Each kind has one per database or group, under the name that sexton status shows.

LEASE   the key, which sexton lease release takes
HOLDER  host, process and a random part: a worker, or a pass in the foreground
ALIVE   whether the holder has beaten within jobs.silence; the leases of one that has not are freed by any worker, or by
        the next pass in the foreground
UNTIL   when the lease ends by itself if its holder does not renew it

A lease that is alive is no fault. One whose holder is gone costs some seconds; sexton lease release KEY ends it at once.`,
		Example: "  sexton lease list\n  sexton lease list --json | jq '.[] | select(.alive | not)'",
		Args:    cli.NoArguments,
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			all, err := env.ConnectForFailures(cmd.Context())
			if err != nil {
				return err
			}
			defer all.Close()
			leases, err := operator.ReadLeases(cmd.Context(), all.Jobs(), all.Config.Jobs.Silence)
			switch {
			case err != nil:
				return err
			case env.JSON:
				return env.PrintJSON(leases)
			case len(leases) == 0:
				env.Printf("no lease is held\n")
				return nil
			}
			return env.Table(func(w io.Writer) {
				_, _ = fmt.Fprintln(w, "LEASE\tHOLDER\tALIVE\tSINCE\tUNTIL")
				for _, l := range leases {
					_, _ = fmt.Fprintf(w, "%s\t%s\t%t\t%s\t%s\n", l.Key, l.Holder, l.Alive,
						l.AcquiredAt.UTC().Format(time.RFC3339), l.ExpiresAt.UTC().Format(time.RFC3339))
				}
			})
		}),
	})
}

// releasedLease is the document of `sexton lease release --json`.
type releasedLease struct {
	Key string `json:"key"`
	// Released is false if the lease was free.
	Released bool   `json:"released"`
	Holder   string `json:"holder,omitempty"`
}

func leaseReleaseCommand(env *cli.Env) *cobra.Command {
	var force bool
	cmd := env.Reports(&cobra.Command{
		Use:   "release KEY",
		Short: "End a lease whose holder is gone",
		Long: `Ends a lease at once, so that the next pass need not wait for its end. The lease of a holder that is alive is refused,
unless --force is given: that holder then commits nothing more under it, and its pass fails. It is recorded who did it.`,
		Example: "  sexton lease release schedule_migrate_external_diffs_worker",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s needs the KEY of one lease; sexton lease list shows them", cmd.CommandPath())
			}
			return nil
		},
		RunE: env.Run(func(cmd *cobra.Command, args []string) error {
			return releaseLease(cmd.Context(), env, args[0], force)
		}),
	})
	cmd.Flags().BoolVar(&force, "force", false, "also where the holder is alive")
	return cmd
}

func releaseLease(ctx context.Context, env *cli.Env, key string, force bool) error {
	all, err := env.ConnectForFailures(ctx)
	if err != nil {
		return err
	}
	defer all.Close()
	done := releasedLease{Key: key}
	err = pgx.BeginFunc(ctx, all.Jobs().Pool, func(tx pgx.Tx) error {
		silence := all.Config.Jobs.Silence.Seconds()
		held, err := all.Jobs().Names.Queries(tx).LeaseEnd(ctx, dbsqlc.LeaseEndParams{Key: key, Force: force, SilenceSeconds: silence})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return knownLease(ctx, all, tx, key)
		case err != nil:
			return fmt.Errorf("release lease %s: %w", key, err)
		case !held.Ended:
			return fmt.Errorf("release lease %s: its holder %s is alive; --force ends it all the same, and its pass fails", key, held.Holder)
		}
		done.Released, done.Holder = true, held.Holder
		if err := raiseFences(ctx, env, all, tx, key, held.Token); err != nil {
			return err
		}
		return audittrail.Record(ctx, all.Jobs(), tx, audittrail.Entry{
			Actor: installation.Actor(), Action: "release", Target: key, Reason: "held by " + held.Holder,
		})
	})
	switch {
	case err != nil:
		return err
	case env.JSON:
		return env.PrintJSON(done)
	case done.Released:
		env.Printf("%s: released; %s held it\n", key, done.Holder)
	default:
		env.Printf("%s: it is not held\n", key)
	}
	return nil
}

// knownLease returns an error where no lease ever had the key.
func knownLease(ctx context.Context, all *installation.Connections, tx pgx.Tx, key string) error {
	_, err := all.Jobs().Names.Queries(tx).LeaseLook(ctx, key)
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
func raiseFences(ctx context.Context, env *cli.Env, all *installation.Connections, tx pgx.Tx, key string, token int64) error {
	for _, db := range all.Databases {
		if down := all.Down[db.Name]; down != nil {
			_, _ = fmt.Fprintf(env.Stderr, "sexton: warning: %v; there the holder may commit until its lease would have ended\n", down)
			continue
		}
		queries := db.Queries()
		if db.Name == all.Config.Jobs.Database {
			queries = db.Names.Queries(tx)
		}
		if _, err := queries.FenceRaise(ctx, dbsqlc.FenceRaiseParams{Key: key, Token: token, LockTimeout: fenceTimeout}); err != nil {
			return fmt.Errorf("release lease %s: raise its fence in database %s: %w", key, db.Name, err)
		}
	}
	return nil
}
