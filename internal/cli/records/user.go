package records

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sexton/internal/batch"
	"sexton/internal/cli"
	"sexton/internal/drain/dml"
	"sexton/internal/installation"
	"sexton/internal/operator"
	riverjobs "sexton/river_jobs"
)

func userCommand(env *cli.Env) *cobra.Command {
	return cli.Group("user", "Have a user deleted, whose contributions stay with the ghost user",
		"  sexton user delete 4711\n  sexton user cancel 4711", userDeleteCommand(env), userCancelCommand(env))
}

// deletedUser is the output of `sexton user delete --json`.
type deletedUser struct {
	UserID dml.ID `json:"user_id"`
	// Queued is false where the user was queued before.
	Queued bool `json:"queued"`
}

func userDeleteCommand(env *cli.Env) *cobra.Command {
	var id userID
	var by string
	var hard, groups, plan bool
	cmd := env.On(riverjobs.GhostUsers, &cobra.Command{
		Use:   "delete ID",
		Short: "Block a user and queue its deletion",
		Long: `Does what sexton.delete_user does in SQL: blocks the user and queues it, once. A worker then moves what the user
wrote to the ghost user, removes the rest in small batches, and deletes the user last. With --hard contributions are
deleted, too. Internal users, the ghost user among them, are refused, and so is the only owner of a group. With --plan
it changes nothing: it counts the rows per table, names the keys that stop the deletion, and says about how long it takes.`,
		Example: "  sexton user delete 4711\n  sexton user delete 4711 --hard --initiator 1\n  sexton user delete --plan 4711",
		Args:    id.argument(env),
	}, func(ctx context.Context, all *installation.Connections) error {
		if plan {
			seen, err := operator.ForeseeUser(ctx, all, id.text, hard)
			return printForeseen(env, seen, err)
		}
		user, queued, err := askByKey(ctx, all, "queue user "+id.text, `SELECT "sexton".delete_user($1, $2, $3, $4)`,
			id.text, optional(by), hard, groups)
		if err != nil {
			return err
		}
		said := "is queued already, as it was asked for then"
		switch {
		case queued && all.Config.GhostUsers.Users.Table != "":
			said = "queued for deletion"
		case queued:
			said = "blocked, and queued for deletion"
		}
		return env.Say(deletedUser{UserID: user, Queued: queued}, "user %s: %s\n", id.text, said)
	})
	cmd.Flags().BoolVar(&plan, "plan", false, "only count what would go, and name the keys that stop it")
	cmd.Flags().BoolVar(&hard, "hard", false, "delete contributions as well")
	cmd.Flags().StringVar(&by, "initiator", "", "`ID` of the user on whose behalf this is done")
	cmd.Flags().StringVar(&by, "by", "", "the same as --initiator, an `ID`")
	cmd.Flags().BoolVar(&groups, "delete-groups", false, "also delete groups that the user alone owns")
	return cmd
}

// cancelledUser is the document of `sexton user cancel --json`.
type cancelledUser struct {
	UserID dml.ID `json:"user_id"`
	// Cancelled is false if the user was not queued.
	Cancelled bool `json:"cancelled"`
}

func userCancelCommand(env *cli.Env) *cobra.Command {
	var id userID
	var by string
	cmd := env.On(riverjobs.GhostUsers, &cobra.Command{
		Use:   "cancel ID",
		Short: "Take back the deletion of a user that has not begun",
		Long: `Does what sexton.cancel_user_deletion does in SQL: takes the user out of the queue and gives it the state that it had
before. Once a worker has changed rows of the user, this is refused. Groups that were scheduled for deletion along with
the user stay so; sexton group cancel restores each.`,
		Example: "  sexton user cancel 4711\n  sexton user cancel 4711 --by 1",
		Args:    id.argument(env),
	}, func(ctx context.Context, all *installation.Connections) error {
		user, cancelled, err := askByKey(ctx, all, "cancel the deletion of user "+id.text,
			`SELECT "sexton".cancel_user_deletion($1, $2)`, id.text, optional(by))
		if err != nil {
			return err
		}
		said := "was not to be deleted"
		if cancelled {
			said = "restored, and not to be deleted any more"
		}
		return env.Say(cancelledUser{UserID: user, Cancelled: cancelled}, "user %s: %s\n", id.text, said)
	})
	cmd.Flags().StringVar(&by, "by", "", "`ID` of the user on whose behalf this is done")
	return cmd
}

// optional is nil if no user is named.
func optional(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}

// userID is the key of a user as it was given.
type userID struct{ text string }

// argument reads it. GitLab's users have numbers.
func (id *userID) argument(env *cli.Env) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if c, err := env.LoadConfig(); err != nil || c.GhostUsers.Users.Table == "" || len(args) != 1 {
			if err := cli.OneID(new(int64), "user")(cmd, args); err != nil {
				return err
			}
		}
		id.text = args[0]
		return nil
	}
}

// askByKey calls one of the doors like ask. It also returns the key that is the first of
// args.
func askByKey(ctx context.Context, all *installation.Connections, what, call string,
	args ...any,
) (key dml.ID, changed bool, err error) {
	db := all.Jobs()
	if err = db.Pool.QueryRow(ctx, db.Names.Render(call+", pg_catalog.to_jsonb($1)"), args...).Scan(&changed,
		&key); err != nil {
		err = cmp.Or(batch.Refusal(err), fmt.Errorf("%s: %w", what, err))
	}
	return key, changed, err
}
