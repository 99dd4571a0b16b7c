package components

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/doctor"
	"sexton/internal/drain/dml"
	"sexton/internal/ghostuser"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/problem"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

func ghostUsers() *Component {
	failures := Keyed("users", "user", "due now", "is being deleted, or is not pending",
		func(ctx context.Context, all *installation.Connections, limit int) ([]ghostuser.Waiting, error) {
			return ghostuser.ReadFailed(ctx, all.Jobs().Pool, all.Jobs().Names, limit)
		},
		func(user ghostuser.Waiting) dml.ID { return user.UserID },
		func(_ *installation.Connections, user ghostuser.Waiting) Failure {
			return Failure{
				Error: user.LastError, Attempts: user.Attempts, Next: user.ConsumeAfter.Time, Since: user.CreatedAt,
				GivenUp: user.ConsumeAfter.InfinityModifier == pgtype.Infinity,
			}
		}, retryUsers)
	return &Component{
		Key: migrate.GhostUsers, Units: map[string]string{ghostuser.QueueTable: "user"}, Failures: failures,
		Backlog: func(ctx context.Context, _ Source, db database.Database) ([]Backlog, error) {
			backlog, err := ReadBacklog(ctx, db, migrate.GhostUsers)
			if err != nil {
				return nil, err
			}
			first, err := ghostuser.ReadWaiting(ctx, db.Pool, db.Names, Shown)
			backlog.Details = waitingUsers{first}
			return []Backlog{backlog}, err
		},
		Plan: map[string]Planner{riverjobs.GhostUsers: Counting(ghostuser.CountDueSQL()+", "+ghostuser.NextDueSQL(),
			func(c *config.Config) (int, []any) { return c.GhostUsers.Limit, nil })},
		Grants: func(g Granting) []migrate.TableGrant {
			t := grants{schema: g.Database.Schema}
			for _, entry := range g.Config.GhostUsers.Move {
				t.named(entry.Table, deletesRows)
			}
			for _, entry := range g.Config.GhostUsers.Delete {
				t.named(entry.Table, deletesRows)
			}
			for _, entry := range g.Config.GhostUsers.Nullify {
				t.named(entry.Table, changesRows)
			}
			t.below(definitions.Name{Table: g.Config.GhostUsers.UsersTable()}, migrate.Directly)
			return t.list
		},
		Checks: []Check{
			// The check compares the configured lists with the jobs database.
			{Name: "ghost_users", When: Binding, Look: func(ctx context.Context, x *Exam) ([]doctor.Finding, error) {
				plan, found, err := riverjobs.CheckGhostUsers(ctx, x.Config, x.DB)
				if err != nil || plan == nil {
					return doctor.Findings(found), err
				}
				missing, err := ghostuser.MissingPrivileges(ctx, x.As(), plan)
				return doctor.Findings(append(found, missing...)), err
			}},
			{Name: "failing_users", When: Work, Look: failingUsers},
		},
	}
}

// waitingUsers holds the first pending users for the output of status, with the progress
// of their deletion.
type waitingUsers struct {
	Users []ghostuser.Waiting `json:"users,omitempty"`
}

// Print prints the pending users.
func (d waitingUsers) Print(w io.Writer) {
	const heading = "\nUSER\tMOVED\tDELETED\tNULLIFIED\tREMAINING\tATTEMPTS\tNOT BEFORE\tERROR"
	render.List(w, "", heading, d.Users, func(u ghostuser.Waiting) []any {
		remaining, after := "-", "-"
		if u.Remaining != nil {
			remaining = fmt.Sprint(*u.Remaining)
		}
		switch at := u.ConsumeAfter; {
		case at.InfinityModifier == pgtype.Infinity:
			after = "infinity"
		case at.InfinityModifier == pgtype.Finite && at.Time.After(time.Now()):
			after = render.Time(&at.Time)
		}
		return []any{u.UserID, u.Moved, u.Deleted, u.Nullified, remaining, u.Attempts, after, &u.LastError}
	})
}

func retryUsers(ctx context.Context, all *installation.Connections, id dml.ID) (users int64, err error) {
	err = installation.Waking(ctx, all.Jobs(), riverjobs.GhostUsers, func(tx pgx.Tx) (err error) {
		users, err = ghostuser.Retry(ctx, tx, all.Jobs().Names, id)
		return err
	})
	return users, err
}

const (
	// failingAfter is the number of attempts after which doctor reports a user, because
	// the reason is probably permanent.
	failingAfter = 3
	// failingRead limits the users that are read, and failingShown the users that get
	// their own finding.
	failingRead  = 1000
	failingShown = 10
)

// failingUsers reports users whose deletion fails repeatedly, for example because of a
// constraint that the ghost user does not meet.
func failingUsers(ctx context.Context, x *Exam) (found []doctor.Finding, _ error) {
	failed, err := ghostuser.ReadFailed(ctx, x.DB.Pool, x.DB.Names, failingRead)
	if err != nil {
		return nil, err
	}
	failed = slices.DeleteFunc(failed, func(user ghostuser.Waiting) bool { return user.Attempts < failingAfter })
	for i, user := range failed {
		if i == failingShown {
			return append(found, doctor.One(problem.Warning, "table "+ghostuser.QueueTable,
				fmt.Sprintf("the deletion of %s fails, too", render.Counted(int64(len(failed)-i), "more user")),
				"see the failures on the web page")...), nil
		}
		found = append(found, doctor.One(problem.Warning, fmt.Sprintf("user %s", user.UserID),
			fmt.Sprintf("its deletion has failed %d times: %s", user.Attempts, user.LastError),
			"change the rows or the constraint that the error names; Sexton retries it later, or immediately with retry on the web page")...)
	}
	return found, nil
}
