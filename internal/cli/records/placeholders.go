package records

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/database"
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
	// More reports that the limit left some out.
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
	var limit *int
	cmd := env.On(riverjobs.PlaceholderCleanup, &cobra.Command{
		Use:   "list",
		Short: "List placeholder users without an owner, and what keeps them",
		Long: `Lists the placeholder users whose import's group is gone, by the ids of their details. Each is due, scheduled (its job
waits or runs), put off until its next attempt, queued among the users to be deleted, given up after its last attempt,
or obsolete (the user is gone or no placeholder any more). A last_deletion_attempt_at of infinity puts one off for ever.
The reason names every table and column that referred to the user at the last attempt, each with one row. Below, they
are counted by what keeps them, and all of them, up to 10,000.`,
		Example: "  sexton placeholders list\n  sexton placeholders list --given-up --json",
	}, func(ctx context.Context, all *installation.Connections) error {
		state := placeholder.State("")
		if givenUp {
			state = placeholder.GivenUp
		}
		return listPlaceholders(ctx, env, all, state, *limit)
	})
	cmd.Flags().BoolVar(&givenUp, "given-up", false, "only placeholder users that will not be tried any more")
	limit = cli.Limit(cmd, "list `N` at most")
	return cmd
}

func listPlaceholders(ctx context.Context, env *cli.Env, all *installation.Connections, state placeholder.State, limit int) error {
	db, rules := all.Jobs(), riverjobs.PlaceholderRules(all.Config)
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
	none := "no placeholder user is without an owner"
	if state == placeholder.GivenUp {
		none = "no placeholder user is given up"
	}
	return env.Print(document, func(w io.Writer) {
		components.PrintPlaceholders(w, none, document.Placeholders)
		if document.More {
			_, _ = fmt.Fprintln(w, "and more; --limit shows them")
		}
		if len(found) > 0 {
			words.List(w, "", "\nKEPT BY\tPLACEHOLDERS\tGIVEN UP\tNEXT ATTEMPT", reasons, func(r placeholder.Reason) []any {
				return []any{r.Reason, r.Placeholders, r.GivenUp, r.NextAttemptAt}
			})
			_, _ = fmt.Fprintf(w, "%d may still be offered, %d of them put off; %d given up\n", backlog.Pending, backlog.Deferred, backlog.GivenUp)
		}
	})
}

// retriedPlaceholder is the output of `sexton placeholders retry --json`.
type retriedPlaceholder struct {
	UserID int64 `json:"user_id"`
	// State is due, or scheduled where a job that waited starts at once.
	State placeholder.State `json:"state"`
}

func placeholdersRetryCommand(env *cli.Env) *cobra.Command {
	var id int64
	var every bool
	cmd := env.On(riverjobs.PlaceholderCleanup, &cobra.Command{
		Use:   "retry [ID]",
		Short: "Give a placeholder user its attempts back, and try it at once",
		Long: `Sets the attempts of a placeholder user to 0 and wakes the workers, who look at it again. A job that waits for its time,
or to be tried again after an error, starts at once instead, as the first attempt. ID is the user's, as list shows it.
What kept it at the last attempt is shown until the next one has ended. With --all it is every placeholder that is put
off or given up, 10,000 at a time.`,
		Example: "  sexton placeholders retry 4711\n  sexton placeholders retry --all",
		Args: func(cmd *cobra.Command, args []string) error {
			if every {
				return cobra.NoArgs(cmd, args)
			}
			return cli.OneID(&id, "user")(cmd, args)
		},
	}, func(ctx context.Context, all *installation.Connections) error {
		return retryPlaceholders(ctx, env, all, id)
	})
	cmd.Flags().BoolVar(&every, "all", false, "every placeholder user that is put off or given up")
	return cmd
}

// retryPlaceholders has one placeholder tried again, or all that are put off or given up where id is 0.
func retryPlaceholders(ctx context.Context, env *cli.Env, all *installation.Connections, id int64) error {
	target := "all placeholders"
	if id != 0 {
		target = fmt.Sprintf("placeholders %d", id)
	}
	if err := all.Record(ctx, database.Change{Actor: installation.Actor(), Action: "retry", Target: target}); err != nil {
		return err
	}
	log := env.Logger(all.Config).With("actor", installation.Actor())
	if id == 0 {
		count, err := installation.GiveAllAttemptsBack(ctx, all.Jobs())
		if err != nil {
			return err
		}
		log.InfoContext(ctx, "placeholder users to be tried again", "placeholder_users", count)
		return env.Say(map[string]int64{"retried": count}, "%s to be tried now\n", words.Counted(count, "placeholder user"))
	}
	state, err := installation.GiveAttemptsBack(ctx, all.Jobs(), id)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "placeholder user to be tried again", "placeholder_user_id", id)
	return env.Say(retriedPlaceholder{UserID: id, State: state}, "placeholder user %d: %s\n", id, installation.Becomes(state))
}
