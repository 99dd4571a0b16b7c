package jobs

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/installation"
	"sexton/internal/operator"
	"sexton/internal/render"
)

func jobCommand(env *cli.Env) *cobra.Command {
	return cli.Group("job", "List, run or enqueue jobs",
		"  sexton job list\n  sexton job run loose_foreign_keys_cleanup --json",
		jobListCommand(env), jobRunCommand(env), jobEnqueueCommand(env))
}

// listedJob is one entry of `sexton job list --json`.
type listedJob struct {
	Kind        string     `json:"kind"`
	Queue       string     `json:"queue"`
	Database    string     `json:"database"`
	Schedule    string     `json:"schedule"`
	Summary     string     `json:"summary"`
	LastRun     *time.Time `json:"last_run"`
	LastOutcome *string    `json:"last_outcome"`
}

func jobListCommand(env *cli.Env) *cobra.Command {
	return env.DatabaseCommand("", &cobra.Command{
		Use:     "list",
		Short:   "List the enabled jobs with schedule and last run",
		Example: "  sexton job list",
	}, func(ctx context.Context, all *installation.Connections) error {
		states, err := operator.ReadJobs(ctx, all)
		if err != nil {
			return err
		}
		jobs := render.Each(states, func(s operator.JobState) listedJob {
			return listedJob{s.Kind, s.Queue, s.Database, s.Schedule, s.Job.Summary, s.LastRun, s.LastOutcome}
		})
		return env.Print(jobs, func(w io.Writer) {
			render.Table(w, "KIND\tDATABASE\tSCHEDULE\tLAST RUN\tOUTCOME", jobs, func(j listedJob) []any {
				return []any{j.Kind, j.Database, &j.Schedule, render.Age(j.LastRun), j.LastOutcome}
			})
		})
	})
}
