package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/bench"
	"sexton/internal/cli"
	"sexton/internal/ghostuser"
	"sexton/internal/jobrun"
	riverjobs "sexton/river_jobs"
)

func benchGhostCommand(env *cli.Env) *cobra.Command {
	var o bench.Options
	var set string
	var target time.Duration
	cmd := clusterBenchmark(env, "ghost --set big --scale 0.2", "Speed of deleting users against one UPDATE and the original's",
		`Moves what users have written to the ghost user in three ways, each on a fresh copy of the same data: by passes
of Sexton, which also deletes the users, by one UPDATE per table, and by statements of the original's shape, 50
rows each. Checks after each that exactly the right rows are the ghost's. The tables are those of the reference
application. Data sets: big (one user with 1,000,000 notes), many (200 users with 1,000 rows each in four tables), duplicates (one
user with 200,000 notes and as many emoji, of half of which the ghost has the like; the others take those out by one DELETE first).
The clients of --foreground read the notes of issues and update single ones.`+benchLoad,
		func() (_ measuredJob, err error) {
			if o.Sets, err = chosenSets(set, bench.GhostSets(), o.Duty); err != nil {
				return measuredJob{}, err
			}
			if target != 0 && (target < time.Millisecond || target > time.Second) {
				return measuredJob{}, errors.New("--target must be 0s, or between 1ms and 1s")
			}
			return measuredJob{
				kind: riverjobs.GhostUsers, file: "loose_foreign_keys: {enabled: false}\nghost_users: {enabled: true}\n",
				environ: []string{"SEXTON_GHOST_USERS__TARGET=" + target.String()}, duty: "SEXTON_GHOST_USERS__DUTY", pass: passOf(usersPass),
			}, nil
		},
		func(ctx context.Context, cluster *bench.Cluster) (*bench.Report, error) {
			return bench.Ghost(ctx, cluster, float64(target.Microseconds())/1000, o)
		})
	setFlag(cmd, &set, bench.GhostSets())
	loadFlags(cmd, &o, "the notes", "the worker")
	cmd.Flags().DurationVar(&target, "target", 20*time.Millisecond, "how long a statement of Sexton's should take, `TIME`; 0s for its fixed sizes")
	return cmd
}

// usersPass holds the facts of a pass that a benchmark needs.
func usersPass(report jobrun.Report, stats ghostuser.Stats) bench.Pass {
	pass := bench.Pass{More: report.Outcome == jobrun.OverLimit, Finished: stats.UsersProcessed}
	for _, rows := range []map[string]int64{stats.Moved, stats.Deleted, stats.Nullified} {
		for _, n := range rows {
			pass.Rows += n
		}
	}
	if len(stats.Errors) > 0 {
		pass.Trouble = fmt.Sprintf("%d users were put off: %s", stats.UsersFailed, stats.Errors[0].Message)
	}
	return pass
}
