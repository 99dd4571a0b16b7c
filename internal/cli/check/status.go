package check

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/installation"
	"sexton/internal/operator"
	"sexton/internal/render"
)

func statusCommand(env *cli.Env) *cobra.Command {
	return env.DatabaseCommand("", &cobra.Command{
		Use:   "status",
		Short: "Show running jobs, backlog, last runs, and why jobs wait",
		Long: `Shows the backlog of each deletion table, the running jobs with rows, rows per second and estimated
time left, the held leases, the last run of each job, and why each job waits.`,
		Example: "  sexton status\n  watch sexton status\n  sexton status --json | jq '.deletion_tables[].pending'",
	}, func(ctx context.Context, all *installation.Connections) error {
		reading, err := operator.Read(ctx, operator.Defined(all))
		if err == nil {
			err = operator.NewLatencies(all).Note(ctx, reading.Jobs)
		}
		if err != nil {
			return err
		}
		return env.Print(reading, func(w io.Writer) { printStatus(w, reading) })
	})
}

func printStatus(w io.Writer, document operator.Reading) {
	render.Table(w, "DELETION TABLE\tDATABASE\tPENDING\tOLDEST\tDEFERRED\tRECHECK", document.DeletionTables,
		func(t components.Backlog) []any {
			if t.Unreachable != "" {
				return []any{t.Table, t.Database, "unreachable", "-", "-", "-"}
			}
			oldest := "-"
			if t.Pending > 0 {
				oldest = render.Span(t.Oldest())
			}
			return []any{
				t.Table, t.Database, render.Capped(t.Pending, t.Capped), oldest, t.DeferredText(), t.Confirming,
			}
		})
	type parent struct {
		components.Parent

		database string
	}
	var parents []parent
	for _, t := range document.DeletionTables {
		for _, p := range t.Parents {
			parents = append(parents, parent{p, t.Database})
		}
	}
	render.List(w, "", "\nPARENT\tDATABASE\tPENDING\tOLDEST", parents, func(p parent) []any {
		return []any{p.Parent.Parent, p.database, render.Capped(p.Pending, p.Capped), render.Span(p.Oldest())}
	})
	for _, t := range document.DeletionTables {
		if t.GivenUp != nil && *t.GivenUp > 0 {
			count := render.AtLeast(*t.GivenUp >= components.PendingCap) + render.Counted(*t.GivenUp, "row")
			_, _ = fmt.Fprintf(w, "\n%s of %s given up; see sexton failures list\n", count, t.Table)
		}
		if t.Details != nil {
			t.Details.Print(w)
		}
	}
	render.List(w, "", "\nLEASE\tHOLDER\tALIVE\tEXPIRES", document.Leases,
		func(l operator.Lease) []any { return []any{l.Key, l.Holder, l.Alive, l.ExpiresAt} })
	printJobs(w, document.Jobs)
	render.List(w, "", "\nWORKER WITH OLD CONFIGURATION\tHOST\tRELOAD ERROR", document.ReloadErrors,
		func(e operator.ReloadError) []any { return []any{e.Worker, e.Host, &e.Error} })
	_, _ = fmt.Fprintln(w, "\n"+document.Cron.String())
}

// printJobs prints the running jobs, all jobs, what jobs wait for, and their last errors.
// The names include the database if the jobs work in several databases.
func printJobs(w io.Writer, jobs []operator.JobState) {
	several := slices.ContainsFunc(jobs, func(j operator.JobState) bool { return j.Database != jobs[0].Database })
	name := func(j operator.JobState) string {
		if several {
			return j.Kind + " in " + j.Database
		}
		return j.Kind
	}
	selected := func(matches func(operator.JobState) bool) []operator.JobState {
		return slices.DeleteFunc(slices.Clone(jobs), func(j operator.JobState) bool { return !matches(j) })
	}
	running := selected(func(j operator.JobState) bool { return j.Running != nil })
	render.List(w, "", "\nRUNNING\tFOR\tROWS\tROWS/S\tTIME LEFT\tHOW", running, func(j operator.JobState) []any {
		timeLeft, how := "-", "-"
		if pace := j.Running.Pace; pace.Left > 0 {
			timeLeft = "about " + render.Span(pace.Left)
		}
		if duty := j.Running.Duty(); duty.Percent > 0 {
			how = duty.String()
		}
		return []any{
			name(j), render.Span(time.Since(j.Running.StartedAt)), render.Grouped(j.Running.Rows),
			render.Grouped(j.Running.RowsPerSecond), timeLeft, how,
		}
	})
	render.Table(w, "\nJOB\tNEXT TICK\tLAST RUN\tOUTCOME", jobs, func(j operator.JobState) []any {
		next := "-"
		if j.NextTick != nil {
			next = "in " + render.Span(time.Until(*j.NextTick))
		}
		return []any{name(j), next, render.Age(j.LastRun), j.LastOutcome}
	})
	render.List(w, "", "\nCLEAN-UP TIME\tP50\tP99\tITEMS",
		selected(func(j operator.JobState) bool { return j.Latency != nil }),
		func(j operator.JobState) []any {
			return []any{
				name(j), render.Duration(j.Latency.P50Duration()), render.Duration(j.Latency.P99Duration()),
				render.Grouped(j.Latency.Items),
			}
		})
	render.List(w, "", "\nWAITING\tFOR", selected(func(j operator.JobState) bool { return j.WaitingFor != nil }),
		func(j operator.JobState) []any { return []any{name(j), j.WaitingFor} })
	render.List(w, "", "\nFAILED\tERROR", selected(func(j operator.JobState) bool { return j.LastError != nil }),
		func(j operator.JobState) []any { return []any{name(j), j.LastError} })
}
