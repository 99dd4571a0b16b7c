package check

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/component"
	"sexton/internal/installation"
	"sexton/internal/operator"
	"sexton/internal/words"
)

func statusCommand(env *cli.Env) *cobra.Command {
	return env.On("", &cobra.Command{
		Use:     "status",
		Short:   "Show backlog, leases, last runs and why something waits",
		Example: "  sexton status\n  sexton status --json | jq '.deletion_tables[].pending'",
	}, func(ctx context.Context, all *installation.Connections) error {
		reading, err := operator.Read(ctx, operator.Defined(all))
		if err != nil {
			return err
		}
		return env.Print(reading, func(w io.Writer) { printStatus(w, reading) })
	})
}

func printStatus(w io.Writer, document operator.Reading) {
	words.Table(w, "DELETION TABLE\tDATABASE\tPENDING\tOLDEST\tPUT OFF\tCONFIRMING", document.DeletionTables, func(t component.Backlog) []any {
		if t.Unreachable != "" {
			return []any{t.Table, t.Database, "unreachable", "-", "-", "-"}
		}
		oldest := "-"
		if t.Pending > 0 {
			oldest = words.Span(t.Oldest())
		}
		return []any{t.Table, t.Database, words.Capped(t.Pending, t.Capped), oldest, t.Deferred, t.Confirming}
	})
	type parent struct {
		component.Parent

		database string
	}
	var parents []parent
	for _, t := range document.DeletionTables {
		for _, p := range t.Parents {
			parents = append(parents, parent{p, t.Database})
		}
	}
	words.List(w, "", "\nPARENT\tDATABASE\tPENDING\tOLDEST", parents, func(p parent) []any {
		return []any{p.Parent.Parent, p.database, words.Capped(p.Pending, p.Capped), words.Span(p.Oldest())}
	})
	for _, t := range document.DeletionTables {
		if t.GivenUp != nil && *t.GivenUp > 0 {
			_, _ = fmt.Fprintf(w, "\n%s of %s given up; see sexton failures list\n", words.Counted(*t.GivenUp, "row"), t.Table)
		}
		if t.Disabled != "" {
			_, _ = fmt.Fprintf(w, "\n%s is not worked off: %s is false\n", t.Table, t.Disabled)
		}
		if t.Details != nil {
			t.Details.Print(w)
		}
	}
	words.List(w, "", "\nLEASE\tHOLDER\tEXPIRES", document.Leases, func(l operator.Lease) []any { return []any{l.Key, l.Holder, l.ExpiresAt} })
	words.Table(w, "\nJOB\tDATABASE\tSCHEDULE\tLAST TICK\tNEXT TICK\tLAST RUN\tOUTCOME\tWAITS FOR\tERROR", document.Jobs,
		func(j operator.JobState) []any {
			return []any{j.Kind, j.Database, &j.Schedule, j.LastTick, j.NextTick, words.Age(j.LastRun), j.LastOutcome, j.WaitingFor, j.LastError}
		})
	for _, j := range document.Jobs {
		if j.Running == nil {
			continue
		}
		if duty := j.Running.Duty(); duty.Percent > 0 {
			_, _ = fmt.Fprintf(w, "\n%s in %s works %s\n", j.Kind, j.Database, duty)
		}
	}
	_, _ = fmt.Fprintln(w, "\n"+document.Cron.String())
}
