package jobs

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/installation"
	"sexton/internal/operator"
	"sexton/internal/render"
)

func leaseCommand(env *cli.Env) *cobra.Command {
	return cli.Group("lease", "Show who holds which lease, and end one whose holder is gone", "  sexton lease list",
		leaseListCommand(env), leaseReleaseCommand(env))
}

func leaseListCommand(env *cli.Env) *cobra.Command {
	return env.On("", &cobra.Command{
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
	}, func(ctx context.Context, all *installation.Connections) error {
		leases, err := operator.ReadLeases(ctx, all.Jobs(), all.Config.Jobs.Silence)
		if err != nil {
			return err
		}
		return env.Print(leases, func(w io.Writer) {
			render.List(w, "no lease is held", "LEASE\tHOLDER\tALIVE\tSINCE\tUNTIL", leases,
				func(l operator.Lease) []any {
					return []any{l.Key, l.Holder, l.Alive, l.AcquiredAt, l.ExpiresAt}
				})
		})
	})
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
	}, func(ctx context.Context, args []string) error {
		return env.With(ctx, "", func(all *installation.Connections) error {
			done, err := all.EndLease(ctx, args[0], force, func(down error) {
				env.Warn(fmt.Sprintf("%v; there the holder may commit until its lease would have ended", down))
			})
			if err != nil {
				return err
			}
			said := "it is not held"
			if done.Released {
				said = "released; " + done.Holder + " held it"
			}
			return env.Say(done, "%s: %s\n", done.Key, said)
		})
	})
	cmd.Flags().BoolVar(&force, "force", false, "also where the holder is alive")
	return cmd
}
