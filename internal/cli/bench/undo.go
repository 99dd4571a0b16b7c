package bench

import (
	"context"

	"github.com/spf13/cobra"

	"sexton/internal/bench"
	"sexton/internal/cli"
	"sexton/internal/installation"
	"sexton/internal/undo"
)

func benchUndoCommand(env *cli.Env) *cobra.Command {
	o := bench.Options{Duty: "100"}
	var set string
	cmd := measuring(env, "undo --set wide --scale 0.2", "Cost of keeping what is deleted, and speed of bringing it back",
		`Deletes parents and lets Sexton delete their children, with loose_foreign_keys.undo off and on, each on a fresh copy
of the same data. Then all rows come back: by COPY where it was off, by "sexton undo" where it was on. Checks after
each that exactly the right rows are gone, and are back. Data sets: wide (10,000 parents with 100 children, whose
values do not compress), large (50 parents with 100 children of 20 KB).`,
		func(ctx context.Context) (_ *bench.Report, err error) {
			if o.Sets, err = chosenSets(set, bench.UndoSets(), o.Duty); err != nil {
				return nil, cli.Usage(err)
			}
			job, err := childrenJob("")
			if err != nil {
				return nil, err
			}
			return onCluster(ctx, env, bench.ServerSettings(), job, func(off *bench.Cluster, g installer) (*bench.Report, error) {
				on := *off
				g.job.environ = append(g.job.environ, "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__KEEP=72h")
				on.Install, on.Open = g.installed, g.open
				return bench.Undo(ctx, off, &on, o)
			})
		})
	setFlag(cmd, &set, bench.UndoSets())
	sizeFlags(cmd, &o.Scale, &o.Rounds, "size")
	return cmd
}

// undoNewest takes the newest deletion back.
func undoNewest(ctx context.Context, all *installation.Bound) (int64, error) {
	engine := all.Undo(undo.Holder+installation.Holder(), all.Databases)
	units, err := engine.List(ctx, 1)
	if err != nil {
		return 0, err
	}
	if len(units) == 0 {
		return 0, undo.ErrUnknown
	}
	report, err := engine.Restore(ctx, units[0].ID, false)
	if err != nil {
		return 0, err
	}
	return report.Restored, nil
}
