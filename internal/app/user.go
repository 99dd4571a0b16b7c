package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"sexton/internal/database"
	"sexton/internal/ghostuser"
	riverjobs "sexton/river_jobs"
)

func (a *app) userCommand() *cobra.Command {
	return group("user", "Have a user deleted, whose contributions stay with the ghost user",
		"  sexton user delete 4711\n  sexton user cancel 4711", a.userDeleteCommand(), a.userCancelCommand())
}

// userDeletion holds the arguments of `sexton user delete`.
type userDeletion struct {
	id, initiator      int64
	hard, groups, plan bool
}

// by is the user on whose behalf something is done, if one is named.
func (r userDeletion) by() *int64 {
	if r.initiator == 0 {
		return nil
	}
	return &r.initiator
}

// deletedUser is the output of `sexton user delete --json`.
type deletedUser struct {
	UserID int64 `json:"user_id"`
	// Queued is false where the user was queued before.
	Queued bool `json:"queued"`
}

func (a *app) userDeleteCommand() *cobra.Command {
	var request userDeletion
	cmd := a.reports(&cobra.Command{
		Use:   "delete ID",
		Short: "Block a user and queue its deletion",
		Long: `Does what sexton.delete_user does in SQL: blocks the user and queues it, once. A worker then moves what the user
wrote to the ghost user, removes the rest in small batches, and deletes the user last. With --hard contributions are
deleted, too. Internal users, the ghost user among them, are refused, and so is the only owner of a group. With --plan
it changes nothing: it counts the rows per table, says what forbids the deletion, and about how long it would take.`,
		Example: "  sexton user delete 4711\n  sexton user delete 4711 --hard --initiator 1\n  sexton user delete --plan 4711",
		Args:    oneUser(&request.id),
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if request.plan {
				return a.foreseeUser(cmd.Context(), request)
			}
			return a.deleteUser(cmd.Context(), request)
		}),
	})
	cmd.Flags().BoolVar(&request.plan, "plan", false, "only count what would go, and say what forbids it")
	cmd.Flags().BoolVar(&request.hard, "hard", false, "delete contributions as well")
	cmd.Flags().Int64Var(&request.initiator, "initiator", 0, "`ID` of the user on whose behalf this is done")
	cmd.Flags().Int64Var(&request.initiator, "by", 0, "the same as --initiator, an `ID`")
	cmd.Flags().BoolVar(&request.groups, "delete-groups", false, "also delete groups that the user alone owns")
	return cmd
}

func (a *app) deleteUser(ctx context.Context, request userDeletion) error {
	all, _, err := a.connectForJob(ctx, riverjobs.GhostUsers)
	if err != nil {
		return err
	}
	defer all.close()
	db := all.jobs()
	done := deletedUser{UserID: request.id}
	err = db.Pool.QueryRow(ctx, db.Names.Render(`SELECT "sexton".delete_user($1, $2, $3, $4)`),
		request.id, request.by(), request.hard, request.groups).Scan(&done.Queued)
	if err != nil {
		return cmp.Or(refusal(err), fmt.Errorf("queue user %d: %w", request.id, err))
	}
	switch {
	case a.json:
		return a.printJSON(done)
	case done.Queued:
		a.printf("user %d: blocked, and queued for deletion\n", request.id)
	default:
		a.printf("user %d: is queued already, as it was asked for then\n", request.id)
	}
	return nil
}

// cancelledUser is the document of `sexton user cancel --json`.
type cancelledUser struct {
	UserID int64 `json:"user_id"`
	// Cancelled is false if the user was not queued.
	Cancelled bool `json:"cancelled"`
}

func (a *app) userCancelCommand() *cobra.Command {
	var request userDeletion
	cmd := a.reports(&cobra.Command{
		Use:   "cancel ID",
		Short: "Take back the deletion of a user that has not begun",
		Long: `Does what sexton.cancel_user_deletion does in SQL: takes the user out of the queue and gives it the state that it had
before. Once a worker has changed rows of the user, this is refused. Groups that were scheduled for deletion along with
the user stay so; sexton group cancel restores each.`,
		Example: "  sexton user cancel 4711\n  sexton user cancel 4711 --by 1",
		Args:    oneUser(&request.id),
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			return a.cancelUser(cmd.Context(), request)
		}),
	})
	cmd.Flags().Int64Var(&request.initiator, "by", 0, "`ID` of the user on whose behalf this is done")
	return cmd
}

func (a *app) cancelUser(ctx context.Context, request userDeletion) error {
	all, _, err := a.connectForJob(ctx, riverjobs.GhostUsers)
	if err != nil {
		return err
	}
	defer all.close()
	db := all.jobs()
	done := cancelledUser{UserID: request.id}
	err = db.Pool.QueryRow(ctx, db.Names.Render(`SELECT "sexton".cancel_user_deletion($1, $2)`), request.id, request.by()).Scan(&done.Cancelled)
	if err != nil {
		return cmp.Or(refusal(err), fmt.Errorf("cancel the deletion of user %d: %w", request.id, err))
	}
	switch {
	case a.json:
		return a.printJSON(done)
	case done.Cancelled:
		a.printf("user %d: restored, and not to be deleted any more\n", request.id)
	default:
		a.printf("user %d: was not to be deleted\n", request.id)
	}
	return nil
}

// refusal is the answer of one of the doors in the database to a request that it does not grant, and nil where
// the error is another one.
func refusal(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok || !strings.HasPrefix(pgErr.Code, "SX01") && !strings.HasPrefix(pgErr.Code, "SX02"):
		return nil
	case pgErr.Hint != "":
		return fmt.Errorf("%s (%s)", pgErr.Message, pgErr.Hint)
	}
	return errors.New(pgErr.Message)
}

func oneUser(id *int64) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s needs the ID of one user", cmd.CommandPath())
		}
		parsed, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || parsed < 1 {
			return fmt.Errorf("%q is not the ID of a user", args[0])
		}
		*id = parsed
		return nil
	}
}

// readGhostQueue reads the backlog of users to be deleted.
func readGhostQueue(ctx context.Context, db database.Database) (deletionTable, error) {
	backlog, err := ghostuser.ReadBacklog(ctx, db.Pool, db.Names)
	if err != nil {
		return deletionTable{}, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	first, err := ghostuser.ReadWaiting(ctx, db.Pool, db.Names, shownUsers)
	if err != nil {
		return deletionTable{}, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	return deletionTable{
		Table: ghostQueue, Database: db.Name, Pending: backlog.Pending, Capped: backlog.Capped,
		OldestAgeSeconds: backlog.OldestAge.Seconds(), Deferred: backlog.Deferred, DeferredUntil: backlog.DeferredUntil, DeferredReason: backlog.DeferredReason,
		Users: first,
	}, nil
}
