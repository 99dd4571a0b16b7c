package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/installation"
	"sexton/internal/placeholder"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

func placeholdersCommand(env *cli.Env) *cobra.Command {
	return cli.Group("placeholders", "Look at the placeholder users that imports left behind, or have them tried again",
		"  sexton placeholders list --given-up\n  sexton placeholders retry 4711\n  sexton placeholders retry --all",
		placeholdersListCommand(env), placeholdersRetryCommand(env))
}

// placeholdersDocument is the output of `sexton placeholders list --json`.
type placeholdersDocument struct {
	Placeholders []placeholder.Placeholder `json:"placeholders"`
	// More tells that the limit left some out.
	More   bool              `json:"more"`
	Counts placeholderCounts `json:"counts"`
}

// placeholderCounts count up to 10,000 each.
type placeholderCounts struct {
	// Pending may still be offered, those put off (Deferred) included; GivenUp will not be.
	Pending  int64 `json:"pending"`
	Deferred int64 `json:"deferred"`
	GivenUp  int64 `json:"given_up"`
	// NextAttemptAt is when the first of those put off can be tried again.
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	// Reasons are what keeps most of them.
	Reasons []placeholder.Reason `json:"reasons"`
}

// shownReasons is how many reasons the list counts.
const shownReasons = 20

func placeholdersListCommand(env *cli.Env) *cobra.Command {
	var givenUp bool
	limit := 100
	cmd := env.Reports(&cobra.Command{
		Use:   "list",
		Short: "List placeholder users without an owner, and what keeps them",
		Long: `Lists the placeholder users whose import's group is gone, by the ids of their details. Each is due, scheduled (its job
waits or runs), put off until its next attempt, queued among the users to be deleted, given up after its last attempt,
or obsolete (the user is gone or no placeholder any more). A last_deletion_attempt_at of infinity puts one off for ever.
The reason names every table and column that referred to the user at the last attempt, each with one row. The next
attempt is the next one that looks: what a reference keeps is looked at after 1, 2, 4 and 8 retry periods, and at the
last attempt; the attempts between are only counted. Below, they are counted by what keeps them, and all of them, up to
10,000.`,
		Example: "  sexton placeholders list\n  sexton placeholders list --given-up --json",
		Args:    cli.NoArguments,
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return cli.Usage(fmt.Errorf("--limit %d must be at least 1", limit))
			}
			state := placeholder.State("")
			if givenUp {
				state = placeholder.GivenUp
			}
			return listPlaceholders(cmd.Context(), env, state, limit)
		}),
	})
	cmd.Flags().BoolVar(&givenUp, "given-up", false, "only placeholder users that will not be tried any more")
	cmd.Flags().IntVar(&limit, "limit", limit, "list `N` at most")
	return cmd
}

func listPlaceholders(ctx context.Context, env *cli.Env, state placeholder.State, limit int) error {
	all, _, err := env.ConnectForJob(ctx, riverjobs.PlaceholderCleanup)
	if err != nil {
		return err
	}
	defer all.Close()
	db := all.Jobs()
	rules := riverjobs.PlaceholderRules(all.Config)
	found, err := placeholder.List(ctx, db.Pool, db.Names, rules, state, limit+1)
	if err != nil {
		return err
	}
	backlog, err := placeholder.ReadBacklog(ctx, db.Pool, db.Names, rules)
	if err != nil {
		return err
	}
	reasons, err := placeholder.ReadReasons(ctx, db.Pool, db.Names, rules, shownReasons)
	if err != nil {
		return err
	}
	document := placeholdersDocument{
		Placeholders: found[:min(len(found), limit)], More: len(found) > limit,
		Counts: placeholderCounts{backlog.Pending, backlog.Deferred, backlog.GivenUp, backlog.DeferredUntil, reasons},
	}
	switch {
	case env.JSON:
		return env.PrintJSON(document)
	case len(found) == 0 && state == placeholder.GivenUp:
		env.Printf("no placeholder user is given up\n")
	case len(found) == 0:
		env.Printf("no placeholder user is without an owner\n")
	}
	err = env.Table(func(w io.Writer) { components.PrintPlaceholders(w, document.Placeholders) })
	if document.More {
		env.Printf("and more; --limit shows them\n")
	}
	if len(found) > 0 {
		err = errors.Join(err, env.Table(func(w io.Writer) { printReasons(w, reasons) }))
		env.Printf("%d may still be offered, %d of them put off; %d given up\n", backlog.Pending, backlog.Deferred, backlog.GivenUp)
	}
	return err
}

// printReasons counts placeholders by what keeps them; without any it prints nothing.
func printReasons(w io.Writer, reasons []placeholder.Reason) {
	if len(reasons) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, "\nKEPT BY\tPLACEHOLDERS\tGIVEN UP\tNEXT ATTEMPT")
	for _, r := range reasons {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", r.Reason, r.Placeholders, r.GivenUp, words.Moment(r.NextAttemptAt))
	}
}

// retriedPlaceholder is the output of `sexton placeholders retry --json`.
type retriedPlaceholder struct {
	UserID int64 `json:"user_id"`
	// State is due, or scheduled where a job that waited starts at once.
	State placeholder.State `json:"state"`
}

// retriedPlaceholders is the document of `sexton placeholders retry --all --json`.
type retriedPlaceholders struct {
	Retried int64 `json:"retried"`
}

func placeholdersRetryCommand(env *cli.Env) *cobra.Command {
	var id int64
	var every bool
	cmd := env.Reports(&cobra.Command{
		Use:   "retry [ID]",
		Short: "Give a placeholder user its attempts back, and try it at once",
		Long: `Sets the attempts of a placeholder user to 0 and wakes the workers, who look at it again. A job that waits for its time,
or to be tried again after an error, starts at once instead, as the first attempt. ID is the user's, as list shows it.
What kept it at the last attempt is shown until the next one has ended. With --all it is every placeholder that is put
off or given up, 10,000 at a time.`,
		Example: "  sexton placeholders retry 4711\n  sexton placeholders retry --all",
		Args: func(cmd *cobra.Command, args []string) error {
			if every {
				return cli.NoArguments(cmd, args)
			}
			return oneUser(&id)(cmd, args)
		},
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			if every {
				return retryPlaceholders(cmd.Context(), env)
			}
			return retryPlaceholder(cmd.Context(), env, id)
		}),
	})
	cmd.Flags().BoolVar(&every, "all", false, "every placeholder user that is put off or given up")
	return cmd
}

func retryPlaceholders(ctx context.Context, env *cli.Env) error {
	all, _, err := env.ConnectForJob(ctx, riverjobs.PlaceholderCleanup)
	if err != nil {
		return err
	}
	defer all.Close()
	if err := installation.RecordRetry(ctx, all, "all placeholders"); err != nil {
		return err
	}
	var retried retriedPlaceholders
	if retried.Retried, err = installation.GiveAllAttemptsBack(ctx, all.Jobs()); err != nil {
		return err
	}
	env.Logger(all.Config).InfoContext(ctx, "placeholder users to be tried again", "actor", installation.Actor(), "placeholder_users", retried.Retried)
	return env.Say(retried, "%s to be tried now\n", words.Counted(retried.Retried, "placeholder user"))
}

func retryPlaceholder(ctx context.Context, env *cli.Env, id int64) error {
	all, _, err := env.ConnectForJob(ctx, riverjobs.PlaceholderCleanup)
	if err != nil {
		return err
	}
	defer all.Close()
	if err := installation.RecordRetry(ctx, all, fmt.Sprintf("placeholders %d", id)); err != nil {
		return err
	}
	retried := retriedPlaceholder{UserID: id}
	if retried.State, err = installation.GiveAttemptsBack(ctx, all.Jobs(), id); err != nil {
		return err
	}
	env.Logger(all.Config).InfoContext(ctx, "placeholder user to be tried again", "actor", installation.Actor(), "placeholder_user_id", id)
	return env.Say(retried, "placeholder user %d: %s\n", id, installation.Becomes(retried.State))
}
