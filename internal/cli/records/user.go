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
	return cli.Group("user", "Delete users and keep their contributions",
		"  sexton user delete 4711\n  sexton user cancel 4711", userDeleteCommand(env), userCancelCommand(env))
}

// deletedUser is the output of `sexton user delete --json`.
type deletedUser struct {
	UserID dml.ID `json:"user_id"`
	// Queued is false if the user had been queued before.
	Queued bool `json:"queued"`
}

func userDeleteCommand(env *cli.Env) *cobra.Command {
	var id userID
	var by string
	var hard, groups, plan bool
	cmd := env.DatabaseCommand(riverjobs.GhostUsers, &cobra.Command{
		Use:   "delete ID",
		Short: "Block a user and queue it for deletion",
		Long: `Calls sexton.delete_user, which blocks the user and queues it. A worker then moves the user's
contributions to the ghost user, removes the rest in small batches, and deletes the user last.
--hard deletes the contributions, too. Internal users, such as the ghost user, and the only owner
of a group are refused.

--plan changes nothing. It counts the rows per table, names the keys that block the deletion, and
estimates its duration.`,
		Example: "  sexton user delete 4711\n  sexton user delete 4711 --hard --by 1\n  sexton user delete --plan 4711",
		Args:    id.argument(env),
	}, func(ctx context.Context, all *installation.Connections) error {
		if plan {
			foreseen, err := operator.ForeseeUser(ctx, all, id.text, hard)
			return printForeseen(env, foreseen, err)
		}
		user, queued, err := callByKey(ctx, all, "queue user "+id.text, `SELECT "sexton".delete_user($1, $2, $3, $4)`,
			id.text, optional(by), hard, groups)
		if err != nil {
			return err
		}
		text := "is already queued; the first request is kept"
		switch {
		case queued && all.Config.GhostUsers.Users.Table != "":
			text = "queued for deletion"
		case queued:
			text = "blocked, and queued for deletion"
		}
		return env.PrintText(deletedUser{UserID: user, Queued: queued}, "user %s: %s\n", id.text, text)
	})
	cmd.Flags().BoolVar(&plan, "plan", false, "only count rows and name blocking keys")
	cmd.Flags().BoolVar(&hard, "hard", false, "also delete contributions")
	cmd.Flags().StringVar(&by, "by", "", "`ID` of the user who requests it")
	cmd.Flags().BoolVar(&groups, "delete-groups", false, "also delete groups that only this user owns")
	return cmd
}

// cancelledUser is the output of `sexton user cancel --json`.
type cancelledUser struct {
	UserID dml.ID `json:"user_id"`
	// Cancelled is false if the user was not queued.
	Cancelled bool `json:"cancelled"`
}

func userCancelCommand(env *cli.Env) *cobra.Command {
	var id userID
	var by string
	cmd := env.DatabaseCommand(riverjobs.GhostUsers, &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel the deletion of a user before it begins",
		Long: `Calls sexton.cancel_user_deletion, which removes the user from the queue and restores its state.
The command is refused after a worker has changed rows of the user. Groups that were scheduled for
deletion with the user remain scheduled: "sexton group cancel" restores each.`,
		Example: "  sexton user cancel 4711\n  sexton user cancel 4711 --by 1",
		Args:    id.argument(env),
	}, func(ctx context.Context, all *installation.Connections) error {
		user, cancelled, err := callByKey(ctx, all, "cancel the deletion of user "+id.text,
			`SELECT "sexton".cancel_user_deletion($1, $2)`, id.text, optional(by))
		if err != nil {
			return err
		}
		text := "was not queued for deletion"
		if cancelled {
			text = "restored; the deletion is canceled"
		}
		return env.PrintText(cancelledUser{UserID: user, Cancelled: cancelled}, "user %s: %s\n", id.text, text)
	})
	cmd.Flags().StringVar(&by, "by", "", "`ID` of the user who requests it")
	return cmd
}

// optional returns a pointer to id, or nil if id is empty.
func optional(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}

// userID is the key of a user, as given on the command line.
type userID struct{ text string }

// argument parses the only argument of a command. It must be a number, unless
// ghost_users.users names a table.
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

// callByKey calls an SQL function whose first argument is a key. It returns the key, and
// whether the function changed something.
func callByKey(ctx context.Context, all *installation.Connections, what, call string,
	args ...any,
) (key dml.ID, changed bool, err error) {
	db := all.Jobs()
	if err = db.Pool.QueryRow(ctx, db.Names.Render(call+", pg_catalog.to_jsonb($1)"), args...).Scan(&changed,
		&key); err != nil {
		err = cmp.Or(batch.Refusal(err), fmt.Errorf("%s: %w", what, err))
	}
	return key, changed, err
}
