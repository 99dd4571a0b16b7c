package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/audittrail"
	"sexton/internal/cli"
	"sexton/internal/installation"
	"sexton/internal/web/page"
	"sexton/internal/words"
)

// FailuresCommand is the command failures.
func FailuresCommand(env *cli.Env) *cobra.Command {
	return cli.Group("failures", "Look at what failed, of every kind, and have it tried again",
		"  sexton failures list\n  sexton failures retry groups 4711", failuresListCommand(env), failuresRetryCommand(env))
}

// failuresDocument is the output of `sexton failures list --json`.
type failuresDocument struct {
	Failures []listedFailure `json:"failures"`
	// More tells that the limit left some out.
	More bool `json:"more"`
}

type listedFailure struct {
	Source string `json:"source"`
	// Database is absent where there is one place only.
	Database string `json:"database,omitempty"`
	ID       string `json:"id"`
	What     string `json:"what"`
	Error    string `json:"error"`
	Attempts int64  `json:"attempts"`
	// NextAttemptAt is null where that is now, or never: then GivenUp is set.
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	GivenUp       bool       `json:"given_up"`
}

func failuresListCommand(env *cli.Env) *cobra.Command {
	limit := 100
	cmd := env.Reports(&cobra.Command{
		Use:   "list",
		Short: "List what failed and is not done since, with reason and next try",
		Long: `Lists, of every enabled component, what the page shows as failed or given up: tombstones, users, placeholders, groups,
diffs that cannot be moved, and River's jobs of which no row tells. A database that cannot be reached is left out, and
the exit code is 4.`,
		Example: "  sexton failures list\n  sexton failures list --json | jq '.failures[] | select(.given_up)'",
		Args:    cli.NoArguments,
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return cli.Usage(fmt.Errorf("--limit %d must be at least 1", limit))
			}
			return listFailures(cmd.Context(), env, limit)
		}),
	})
	cmd.Flags().IntVar(&limit, "limit", limit, "list `N` of each source at most")
	return cmd
}

func listFailures(ctx context.Context, env *cli.Env, limit int) error {
	all, err := env.ConnectForFailures(ctx)
	if err != nil {
		return err
	}
	defer all.Close()
	document := failuresDocument{Failures: []listedFailure{}}
	for _, source := range failureSources(all) {
		failures, more, err := source.list(ctx, limit)
		if err != nil {
			return fmt.Errorf("list failures of %s: %w", source.name(), err)
		}
		document.More = document.More || more
		for _, f := range failures {
			listed := listedFailure{
				Source: f.Source, Database: f.Database, ID: f.ID, What: f.What, Error: f.Error, Attempts: f.Attempts, GivenUp: f.GivenUp,
			}
			if !f.Next.IsZero() {
				listed.NextAttemptAt = &f.Next
			}
			document.Failures = append(document.Failures, listed)
		}
	}
	if env.JSON {
		err = env.PrintJSON(document)
	} else {
		err = printFailures(env, document)
	}
	return cmp.Or(err, all.Complete())
}

func printFailures(env *cli.Env, document failuresDocument) error {
	if len(document.Failures) == 0 {
		env.Printf("nothing has failed that is not done by now\n")
		return nil
	}
	err := env.Table(func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "SOURCE\tDATABASE\tID\tWHAT\tATTEMPTS\tNEXT TRY\tERROR")
		for _, f := range document.Failures {
			next := "now"
			switch {
			case f.GivenUp:
				next = "given up"
			case f.NextAttemptAt != nil:
				next = f.NextAttemptAt.UTC().Format(time.RFC3339)
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n",
				f.Source, cmp.Or(f.Database, "-"), f.ID, words.Cell(&f.What), f.Attempts, next, words.Cell(&f.Error))
		}
	})
	if document.More {
		env.Printf("and more; --limit shows them\n")
	}
	return err
}

func failuresRetryCommand(env *cli.Env) *cobra.Command {
	var what page.Retry
	var everything bool
	cmd := env.Reports(&cobra.Command{
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
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			return retryFailureCommand(cmd.Context(), env, what)
		}),
	})
	cmd.Flags().StringVar(&what.Database, "database", "", "the `NAME` of the database that a tombstone is in")
	cmd.Flags().BoolVar(&everything, "all", false, "all that failed there")
	return cmd
}

func retryFailureCommand(ctx context.Context, env *cli.Env, what page.Retry) error {
	all, err := env.ConnectForFailures(ctx)
	if err != nil {
		return err
	}
	defer all.Close()
	if what.Database == "" && len(all.Databases) == 1 && what.Source == (tombstoneFailures{}).name() {
		what.Database = all.Databases[0].Name
	}
	said, err := retryFailure(ctx, all, what, audittrail.Entry{Actor: installation.Actor()})
	if err != nil {
		return err
	}
	if env.JSON {
		return env.PrintJSON(map[string]string{"result": said})
	}
	env.Printf("%s\n", said)
	return nil
}

// retryFailure has something tried again on somebody's behalf, and says what came of it.
func retryFailure(ctx context.Context, all *installation.Connections, what page.Retry, by audittrail.Entry) (string, error) {
	var source failureSource
	var known []string
	for _, one := range failureSources(all) {
		known = append(known, one.name())
		if one.name() == what.Source {
			source = one
		}
	}
	if source == nil {
		return "", &page.RefusedError{Reason: fmt.Sprintf("nothing called %q fails here; there are %s", what.Source, strings.Join(known, ", "))}
	}
	by.Action, by.Target = "retry", "all "+what.Source
	if what.ID != "" {
		by.Target = what.Source + " " + what.ID
	}
	if what.Database != "" {
		by.Target += " of " + what.Database
	}
	return source.retry(ctx, what.Database, what.ID, func() error {
		return audittrail.Record(ctx, all.Jobs(), all.Jobs().Pool, by)
	})
}
