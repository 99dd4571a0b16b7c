package records

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sexton/internal/batch"
	"sexton/internal/cli"
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
	UserID int64 `json:"user_id"`
	// Queued is false where the user was queued before.
	Queued bool `json:"queued"`
}

func userDeleteCommand(env *cli.Env) *cobra.Command {
	var id, by int64
	var hard, groups, plan bool
	cmd := env.On(riverjobs.GhostUsers, &cobra.Command{
		Use:   "delete ID",
		Short: "Block a user and queue its deletion",
		Long: `Does what sexton.delete_user does in SQL: blocks the user and queues it, once. A worker then moves what the user
wrote to the ghost user, removes the rest in small batches, and deletes the user last. With --hard contributions are
deleted, too. Internal users, the ghost user among them, are refused, and so is the only owner of a group. With --plan
it changes nothing: it counts the rows per table, names the keys that stop the deletion, and says about how long it takes.`,
		Example: "  sexton user delete 4711\n  sexton user delete 4711 --hard --initiator 1\n  sexton user delete --plan 4711",
		Args:    cli.OneID(&id, "user"),
	}, func(ctx context.Context, all *installation.Connections) error {
		if plan {
			seen, err := operator.ForeseeUser(ctx, all, id, hard)
			return printForeseen(env, seen, err)
		}
		queued, err := ask(ctx, all, fmt.Sprintf("queue user %d", id), `SELECT "sexton".delete_user($1, $2, $3, $4)`, id, optional(by), hard, groups)
		if err != nil {
			return err
		}
		said := "is queued already, as it was asked for then"
		if queued {
			said = "blocked, and queued for deletion"
		}
		return env.Say(deletedUser{UserID: id, Queued: queued}, "user %d: %s\n", id, said)
	})
	cmd.Flags().BoolVar(&plan, "plan", false, "only count what would go, and name the keys that stop it")
	cmd.Flags().BoolVar(&hard, "hard", false, "delete contributions as well")
	cmd.Flags().Int64Var(&by, "initiator", 0, "`ID` of the user on whose behalf this is done")
	cmd.Flags().Int64Var(&by, "by", 0, "the same as --initiator, an `ID`")
	cmd.Flags().BoolVar(&groups, "delete-groups", false, "also delete groups that the user alone owns")
	return cmd
}

// ask calls one of the doors in the database, which reports whether anything has changed. What was asked for stands in errors.
func ask(ctx context.Context, all *installation.Connections, what, call string, args ...any) (changed bool, err error) {
	db := all.Jobs()
	if err = db.Pool.QueryRow(ctx, db.Names.Render(call), args...).Scan(&changed); err != nil {
		err = cmp.Or(batch.Refusal(err), fmt.Errorf("%s: %w", what, err))
	}
	return changed, err
}

// cancelledUser is the document of `sexton user cancel --json`.
type cancelledUser struct {
	UserID int64 `json:"user_id"`
	// Cancelled is false if the user was not queued.
	Cancelled bool `json:"cancelled"`
}

func userCancelCommand(env *cli.Env) *cobra.Command {
	var id, by int64
	cmd := env.On(riverjobs.GhostUsers, &cobra.Command{
		Use:   "cancel ID",
		Short: "Take back the deletion of a user that has not begun",
		Long: `Does what sexton.cancel_user_deletion does in SQL: takes the user out of the queue and gives it the state that it had
before. Once a worker has changed rows of the user, this is refused. Groups that were scheduled for deletion along with
the user stay so; sexton group cancel restores each.`,
		Example: "  sexton user cancel 4711\n  sexton user cancel 4711 --by 1",
		Args:    cli.OneID(&id, "user"),
	}, func(ctx context.Context, all *installation.Connections) error {
		cancelled, err := ask(ctx, all, fmt.Sprintf("cancel the deletion of user %d", id),
			`SELECT "sexton".cancel_user_deletion($1, $2)`, id, optional(by))
		if err != nil {
			return err
		}
		said := "was not to be deleted"
		if cancelled {
			said = "restored, and not to be deleted any more"
		}
		return env.Say(cancelledUser{UserID: id, Cancelled: cancelled}, "user %d: %s\n", id, said)
	})
	cmd.Flags().Int64Var(&by, "by", 0, "`ID` of the user on whose behalf this is done")
	return cmd
}

// optional is nil where no user is named.
func optional(id int64) *int64 {
	if id == 0 {
		return nil
	}
	return &id
}
