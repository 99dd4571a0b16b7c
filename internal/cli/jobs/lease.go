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
	return cli.Group("lease", "List the held leases, or release one of a dead holder", "  sexton lease list",
		leaseListCommand(env), leaseReleaseCommand(env))
}

func leaseListCommand(env *cli.Env) *cobra.Command {
	return env.On("", &cobra.Command{
		Use:   "list",
		Short: "List the held leases",
		Long: `Lists the held leases. A lease allows one run at a time: another run with the same KEY is skipped
or waits until the lease ends. Each kind has one lease per database or group.

LEASE   the key, for "sexton lease release"
HOLDER  host, process ID and a random part
ALIVE   whether the holder sent a heartbeat within jobs.silence. Any worker, or the next run in the
        foreground, releases the leases of a dead holder
UNTIL   when the lease expires if its holder does not renew it

The lease of a dead holder delays the next run by some seconds. "sexton lease release KEY" ends it
immediately.`,
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
		Short: "Release the lease of a dead holder",
		Long: `Ends a lease, so that the next run need not wait until it expires. If the holder is alive, the
command is refused unless --force is given: the holder can then commit no more batches, and its run
fails. The release is recorded in sexton.audit.`,
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
				env.Warn(fmt.Sprintf("%v: there the holder can commit until its lease would have expired", down))
			})
			if err != nil {
				return err
			}
			text := "not held"
			if done.Released {
				text = "released (holder: " + done.Holder + ")"
			}
			return env.Say(done, "%s: %s\n", done.Key, text)
		})
	})
	cmd.Flags().BoolVar(&force, "force", false, "also release the lease of a live holder")
	return cmd
}
