package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/bench"
	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	riverjobs "sexton/river_jobs"
)

func benchDrainCommand(env *cli.Env) *cobra.Command {
	var o bench.Options
	var set, pace string
	cmd := clusterBenchmark(env, "drain --set wide --scale 0.2", "Speed of Sexton against one statement, native cascade and the original's",
		`Deletes parents and lets their children go in four ways, each on a fresh copy of the same data: by passes of
Sexton, by one DELETE joined to the tombstones, by ON DELETE CASCADE or SET NULL, and by statements of the
original's shape. Checks after each that exactly the right rows are gone. Data sets: wide (10,000 parents with
100 children), fanout (2,000 parents with 50 children in each of 20 tables), skew (one parent with a million
children, 1,000 with 10), nullify (wide with three more indexes, and children that stay), single (100,000 parents
with one child), slow (600 parents with children that cost 20 ms each by a trigger, that no index leads to, and
above a native cascade without an index).`+benchLoad,
		func() (_ measuredJob, err error) {
			if o.Sets, err = chosenSets(set, bench.DrainSets(), o.Duty); err != nil {
				return measuredJob{}, err
			}
			return childrenJob(pace)
		},
		o.Drain)
	setFlag(cmd, &set, bench.DrainSets())
	loadFlags(cmd, &o, "the child tables", "the worker (pace adaptive)")
	paceFlag(cmd, &pace)
	return cmd
}

func benchScaleCommand(env *cli.Env) *cobra.Command {
	var o bench.ScaleOptions
	var most int64
	var pace string
	cmd := clusterBenchmark(env, "scale --max 1000000 --old-snapshot", "Cost per row and memory by the size of the backlog",
		`Drains backlogs of 10,000, 100,000, 1,000,000 and 10,000,000 tombstones with one child each. With
--old-snapshot each also while another session holds a snapshot from before. The largest takes some 10 GB of
disk and many minutes.`,
		func() (measuredJob, error) {
			if most < bench.SmallestBacklog || most > bench.LargestBacklog {
				return measuredJob{}, fmt.Errorf("--max must be between %d and %d", bench.SmallestBacklog, bench.LargestBacklog)
			}
			o.Sizes = bench.Backlogs(most)
			return childrenJob(pace)
		},
		o.Scale)
	cmd.Flags().Int64Var(&most, "max", bench.LargestBacklog, "leave out backlogs of more than `N` tombstones")
	cmd.Flags().BoolVar(&o.OldSnapshot, "old-snapshot", false, "measure also beside an old snapshot")
	paceFlag(cmd, &pace)
	return cmd
}

func benchWorkersCommand(env *cli.Env) *cobra.Command {
	var o bench.Options
	cmd := clusterBenchmark(env, "workers --scale 0.1", "Speed of several workers on one database, and of several databases",
		`Drains the data set wide (10,000 parents with 100 children) by 1, 2 and 4 workers on one database, where one of them
works at a time, and by a worker each on 2 and 4 databases of the same server.`,
		func() (measuredJob, error) { return childrenJob("") },
		o.Workers)
	sizeFlags(cmd, &o.Scale, &o.Rounds, "size")
	return cmd
}

func paceFlag(cmd *cobra.Command, pace *string) {
	cmd.Flags().StringVar(pace, "pace", "", "`NAME` of the worker's pace, whose limits per pass are lifted (default: the configuration's own default)")
}

// childrenJob cleans up after deleted parents at the pace of that name, or the default one. Nothing but time ends a pass.
func childrenJob(pace string) (measuredJob, error) {
	if choices := config.Pace("").Choices(); pace != "" && !slices.Contains(choices, pace) {
		return measuredJob{}, fmt.Errorf("--pace must be one of %s", strings.Join(choices, ", "))
	}
	environ := []string{"SEXTON_DATABASES__MAIN__LIMITS__RUNTIME=50s"}
	if pace != "" {
		environ = append(environ, "SEXTON_DATABASES__MAIN__PACE="+pace)
	}
	if pace != "" && pace != string(config.Adaptive) { // Which has none, and works otherwise where it is given one.
		const unlimited = "1000000000"
		environ = append(environ, "SEXTON_DATABASES__MAIN__LIMITS__DELETES="+unlimited, "SEXTON_DATABASES__MAIN__LIMITS__UPDATES="+unlimited)
	}
	return measuredJob{
		kind: riverjobs.LooseForeignKeys, file: "loose_foreign_keys: {definitions: [definitions.yml]}\n",
		environ: environ, duty: "SEXTON_LOOSE_FOREIGN_KEYS__DUTY", pass: passOf(childrenPass),
	}, nil
}

// childrenPass holds the facts of a pass that a benchmark needs.
func childrenPass(report jobrun.Report, stats loosefk.Stats) bench.Pass {
	pass := bench.Pass{
		// What failed in a pass is left to the next one.
		More: report.Outcome == jobrun.OverLimit || len(stats.Errors) > 0,
		Rows: stats.DeleteCount + stats.UpdateCount, Finished: stats.Processed,
	}
	if stats.Rescheduled > 0 {
		pass.Trouble = fmt.Sprintf("%d tombstones were put off", stats.Rescheduled)
		if len(stats.Errors) > 0 {
			pass.Trouble += ": " + stats.Errors[0].Message
		}
	}
	return pass
}
