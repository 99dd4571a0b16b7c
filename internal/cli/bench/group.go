package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/bench"
	"sexton/internal/cli"
	"sexton/internal/groupdelete"
	"sexton/internal/jobrun"
	riverjobs "sexton/river_jobs"
)

func benchGroupCommand(env *cli.Env) *cobra.Command {
	var o bench.Options
	var set string
	cmd := clusterBenchmark(env, "group --scale 0.1 --foreground", "A group's destruction in small steps against one DELETE with native cascades",
		`Destroys a group of 1,000 projects with a million rows below them in two ways, each on a fresh copy of the same data: by
the job group_destroy, and by one DELETE of the group's row with ON DELETE CASCADE all the way down. Checks after each
that exactly the right rows are gone. The job works at --duty. --set chooses the group: flat has the projects itself,
levels has them in four levels of groups, and ring has issues that refer to each other in rings of ten.`+benchLoad,
		func() (measuredJob, error) {
			if _, err := chosenSets(allSets, nil, o.Duty); err != nil {
				return measuredJob{}, err
			}
			if !slices.Contains(bench.GroupSets(), set) {
				return measuredJob{}, fmt.Errorf("--set must be one of %s", strings.Join(bench.GroupSets(), ", "))
			}
			return measuredJob{
				kind: riverjobs.GroupDestroy, args: json.RawMessage(`{"group_id": 1, "user_id": 1}`),
				file: "loose_foreign_keys: {enabled: false}\nadjourned_groups: {enabled: true}\n",
				duty: "SEXTON_ADJOURNED_GROUPS__DUTY", pass: passOf(destroyPass),
			}, nil
		},
		func(ctx context.Context, cluster *bench.Cluster) (*bench.Report, error) {
			return bench.Group(ctx, cluster, set, o)
		})
	cmd.Flags().StringVar(&set, "set", bench.FlatGroup, "the group, `NAME`")
	loadFlags(cmd, &o, "the tables", "the job")
	return cmd
}

// destroyPass holds the facts of a run that a benchmark needs.
func destroyPass(report jobrun.Report, stats groupdelete.Stats) bench.Pass {
	pass := bench.Pass{More: report.Outcome == jobrun.OverLimit, Rows: stats.Done, Finished: stats.Groups}
	if !pass.More && stats.Outcome != groupdelete.Destroyed {
		pass.Trouble = string(stats.Outcome) + ": " + report.Reason
	}
	return pass
}
