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
	return cli.Group("failures", "Look at what failed, of every kind, and have it tried again",
		"  sexton failures list\n  sexton failures retry groups 4711", failuresListCommand(env),
		failuresRetryCommand(env))
}

func failuresListCommand(env *cli.Env) *cobra.Command {
	var limit *int
	cmd := env.On("", &cobra.Command{
		Use:   "list",
		Short: "List what failed and is not done since, with reason and next try",
		Long: `Lists, of every enabled component, what the page shows as failed or given up: tombstones, users, placeholders, groups,
diffs that cannot be moved, and River's jobs of which no row tells. What only waits for a lock says so, and names the
session that held it at the last try. A database that cannot be reached is left out, and the exit code is 4.`,
		Example: "  sexton failures list\n  sexton failures list --json | jq '.failures[] | select(.given_up)'",
	}, func(ctx context.Context, all *installation.Connections) error {
		document, err := operator.ReadFailures(ctx, all, *limit)
		if err != nil {
			return err
		}
		return cmp.Or(env.Print(document, func(w io.Writer) { printFailures(w, document) }), all.Complete())
	})
	limit = cli.Limit(cmd, "list `N` of each source at most")
	return cmd
}

func printFailures(w io.Writer, document operator.Failures) {
	const none, heading = "nothing has failed that is not done by now",
		"SOURCE\tDATABASE\tID\tWHAT\tATTEMPTS\tNEXT TRY\tERROR"
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
		_, _ = fmt.Fprintf(w, "and more %s; --limit shows them\n", render.Listed(document.Capped))
	}
}

func failuresRetryCommand(env *cli.Env) *cobra.Command {
	var what components.Retry
	var everything bool
	cmd := env.On("", &cobra.Command{
		Use:   "retry SOURCE [ID]",
		Short: "Have one row of a source tried again now, or all that failed there",
		Long: `Has what failed tried again at once, as the button of the page does. SOURCE and ID are the ones that list shows: one of
tombstones, users, placeholders, groups, diffs and jobs. Tombstones need --database where several are configured, as each
database numbers its own. --all takes as many as one look shows. The change is recorded in sexton.audit.`,
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
		said, err := operator.RetryFailures(ctx, all, what, database.Change{Actor: installation.Actor()})
		if refused, ok := errors.AsType[*components.RefusedError](err); ok && refused.Wrong {
			return cli.Usage(err)
		}
		if err != nil {
			return err
		}
		return env.Say(map[string]string{"result": said}, "%s\n", said)
	})
	cmd.Flags().StringVar(&what.Database, "database", "", "the `NAME` of the database that a tombstone is in")
	cmd.Flags().BoolVar(&everything, "all", false, "all that failed there")
	return cmd
}
