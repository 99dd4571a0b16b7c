package check

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/component"
	"sexton/internal/operator"
	"sexton/internal/words"
)

func statusCommand(env *cli.Env) *cobra.Command {
	return env.Reports(&cobra.Command{
		Use:     "status",
		Short:   "Show backlog, leases, last runs and why something waits",
		Example: "  sexton status\n  sexton status --json | jq '.deletion_tables[].pending'",
		Args:    cli.NoArguments,
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			all, err := env.ConnectForFailures(cmd.Context())
			if err != nil {
				return err
			}
			defer all.Close()
			reading, err := operator.Read(cmd.Context(), operator.Defined(all))
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(reading)
			}
			return printStatus(env, reading)
		}),
	})
}

func printStatus(env *cli.Env, document operator.Reading) error {
	return env.Table(func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "DELETION TABLE\tDATABASE\tPENDING\tOLDEST\tPUT OFF\tCONFIRMING")
		for _, t := range document.DeletionTables {
			if t.Unreachable != "" {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t-\t-\t-\n", t.Table, t.Database, "unreachable")
				continue
			}
			pending, oldest := fmt.Sprint(t.Pending), "-"
			if t.Capped {
				pending += "+"
			}
			if t.Pending > 0 {
				oldest = t.Oldest().Round(time.Second).String()
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", t.Table, t.Database, pending, oldest, t.Deferred, t.Confirming)
		}
		printParents(w, document.DeletionTables)
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
		if len(document.Leases) > 0 {
			_, _ = fmt.Fprintln(w, "\nLEASE\tHOLDER\tEXPIRES")
		}
		for _, l := range document.Leases {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", l.Key, l.Holder, l.ExpiresAt.UTC().Format(time.RFC3339))
		}
		_, _ = fmt.Fprintln(w, "\nJOB\tDATABASE\tSCHEDULE\tLAST TICK\tNEXT TICK\tLAST RUN\tOUTCOME\tWAITS FOR\tERROR")
		for _, j := range document.Jobs {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				j.Kind, j.Database, words.Cell(&j.Schedule), words.Moment(j.LastTick), words.Moment(j.NextTick), words.Age(j.LastRun),
				words.Cell(j.LastOutcome), words.Cell(j.WaitingFor), words.Cell(j.LastError))
		}
		_, _ = fmt.Fprintln(w, "\n"+document.Cron.String())
	})
}

func printParents(w io.Writer, tables []component.Backlog) {
	if !slices.ContainsFunc(tables, func(t component.Backlog) bool { return len(t.Parents) > 0 }) {
		return
	}
	_, _ = fmt.Fprintln(w, "\nPARENT\tDATABASE\tPENDING\tOLDEST")
	for _, t := range tables {
		for _, p := range t.Parents {
			pending := fmt.Sprint(p.Pending)
			if p.Capped {
				pending += "+"
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Parent, t.Database, pending, p.Oldest().Round(time.Second))
		}
	}
}
