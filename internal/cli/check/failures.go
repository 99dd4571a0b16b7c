package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/operator"
	"sexton/internal/render"
)

func failuresCommand(env *cli.Env) *cobra.Command {
	return cli.Group("failures", "List and retry failures of all kinds",
		"  sexton failures list\n  sexton failures retry groups 4711", failuresListCommand(env),
		failuresRetryCommand(env))
}

func failuresListCommand(env *cli.Env) *cobra.Command {
	var limit *int
	cmd := env.DatabaseCommand("", &cobra.Command{
		Use:   "list",
		Short: "List unresolved failures with reason and next attempt",
		Long: `Lists the failed rows of every enabled component (tombstones, users, placeholders, groups, diffs,
retention rules), and failed River jobs that have no such row. A row that waits for a lock is listed
with the session that held it at the last attempt. If a database cannot be reached, its failures are
left out, and the exit code is 4.`,
		Example: "  sexton failures list\n  sexton failures list --json | jq '.failures[] | select(.given_up)'",
	}, func(ctx context.Context, all *installation.Connections) error {
		document, err := operator.ReadFailures(ctx, all, *limit)
		if err != nil {
			return err
		}
		return cmp.Or(env.Print(document, func(w io.Writer) { printFailures(w, document) }), all.Complete())
	})
	limit = cli.Limit(cmd, "list at most `N` failures of each source")
	return cmd
}

func printFailures(w io.Writer, document operator.Failures) {
	const none, heading = "no unresolved failures",
		"SOURCE\tDATABASE\tID\tWHAT\tATTEMPTS\tNEXT ATTEMPT\tERROR"
	render.List(w, none, heading, document.Failures, func(f components.Failure) []any {
		next := "now"
		switch {
		case f.GivenUp:
			next = "given up"
		case !f.Next.IsZero():
			next = render.Time(&f.Next)
		}
		reason := f.Error
		if f.Locked() {
			reason = "waits for a lock: " + f.Error
		}
		return []any{f.Source, &f.Database, f.ID, &f.What, f.Attempts, next, &reason}
	})
	if document.More {
		_, _ = fmt.Fprintf(w, "more failures of %s; raise --limit to list them\n", render.Listed(document.Capped))
	}
}

func failuresRetryCommand(env *cli.Env) *cobra.Command {
	var what components.Retry
	var everything bool
	cmd := env.DatabaseCommand("", &cobra.Command{
		Use:   "retry SOURCE [ID]",
		Short: "Retry one failed row now, or all failed rows of a source",
		Long: `Makes failed rows due now, like the button on the page. "sexton failures list" prints
SOURCE and ID. SOURCE is one of tombstones, users, placeholders, groups, diffs and jobs. Tombstones
need --database if several databases are configured, because each database numbers its own
tombstones. With more than 200 failed rows, --all may have to be run again. The retry is recorded
in sexton.audit.`,
		Example: "  sexton failures retry groups 4711\n  sexton failures retry diffs --all\n  sexton failures retry tombstones 17 --database ci",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 || everything != (len(args) == 1) {
				return fmt.Errorf("%s needs a SOURCE, such as groups, and either an ID or --all; sexton failures list shows them", cmd.CommandPath())
			}
			what.Source = args[0]
			if len(args) == 2 {
				what.ID = args[1]
			}
			return nil
		},
	}, func(ctx context.Context, all *installation.Connections) error {
		text, err := operator.RetryFailures(ctx, all, what, database.Change{Actor: installation.Actor()})
		if refused, ok := errors.AsType[*components.RefusedError](err); ok && refused.Wrong {
			return cli.Usage(err)
		}
		if err != nil {
			return err
		}
		return env.PrintText(map[string]string{"result": text}, "%s\n", text)
	})
	cmd.Flags().StringVar(&what.Database, "database", "", "`NAME` of the database of a tombstone or retention rule")
	cmd.Flags().BoolVar(&everything, "all", false, "retry all failed rows of the source")
	return cmd
}
