package app

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) jobCommand() *cobra.Command {
	return group("job", "List the jobs, or run one pass of one", "  sexton job list\n  sexton job run loose_foreign_keys_cleanup --json",
		a.jobListCommand(), a.jobRunCommand(), a.jobEnqueueCommand())
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

func (a *app) jobListCommand() *cobra.Command {
	return a.reports(&cobra.Command{
		Use:     "list",
		Short:   "List the enabled jobs with schedule and last run",
		Example: "  sexton job list",
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			all, err := a.connectReachable(cmd.Context())
			if err != nil {
				return err
			}
			defer all.close()
			if err := all.checkSchemas(cmd.Context()); err != nil {
				return err
			}
			states, err := jobStates(cmd.Context(), all)
			if err != nil {
				return err
			}
			jobs := make([]listedJob, len(states))
			for i, s := range states {
				jobs[i] = listedJob{
					Kind: s.job.Kind, Queue: s.job.Queue, Database: s.Database, Schedule: s.job.Schedule, Summary: s.job.Summary,
					LastRun: s.LastRun, LastOutcome: s.LastOutcome,
				}
			}
			if a.json {
				return a.printJSON(jobs)
			}
			return a.table(func(w io.Writer) {
				_, _ = fmt.Fprintln(w, "KIND\tDATABASE\tSCHEDULE\tLAST RUN\tOUTCOME")
				for _, job := range jobs {
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", job.Kind, job.Database, text(&job.Schedule), age(job.LastRun), text(job.LastOutcome))
				}
			})
		}),
	})
}
