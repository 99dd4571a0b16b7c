package app

import (
	"context"
	"fmt"
	"slices"

	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/ghostuser"
	"sexton/internal/placeholder"
	"sexton/internal/problem"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// bindGhostUsers holds the lists of users' columns against the jobs database.
func (x *examination) bindGhostUsers(ctx context.Context) {
	for _, db := range x.Databases {
		if db.Name == x.Config.Jobs.Database {
			x.report.Run(ctx, "ghost_users", db.Name, func(ctx context.Context) ([]doctor.Finding, error) {
				plan, found, err := riverjobs.CheckGhostUsers(ctx, x.Config, db, db.Pool)
				if err != nil || plan == nil {
					return asFindings(found), err
				}
				missing, err := ghostuser.MissingPrivileges(ctx, db.Pool, plan)
				return asFindings(append(found, missing...)), err
			})
		}
	}
}

// bindPlaceholderUsers holds the columns that keep placeholders against the jobs database.
func (x *examination) bindPlaceholderUsers(ctx context.Context) {
	for _, db := range x.Databases {
		if db.Name == x.Config.Jobs.Database {
			x.report.Run(ctx, "placeholder_users", db.Name, func(ctx context.Context) ([]doctor.Finding, error) {
				_, found, err := riverjobs.CheckPlaceholderUsers(ctx, x.Config, db, db.Pool)
				if err != nil {
					return nil, err
				}
				negative, err := placeholder.CountNegative(ctx, db.Pool, db.Names)
				if err != nil || negative == 0 {
					return asFindings(found), err
				}
				return append(asFindings(found), doctor.Finding{
					Severity: problem.Warning, Object: "table " + placeholderTable,
					Message: words.Counted(negative, "row") + " with a negative number of attempts: they would be offered too often",
					Fix: "UPDATE " + placeholderTable + " SET deletion_attempts = 0 WHERE deletion_attempts < 0, " +
						"then ALTER TABLE " + placeholderTable + " ADD CHECK (deletion_attempts >= 0)",
				}), nil
			})
		}
	}
}

const (
	// failingAfter is how many attempts tell a reason that stays from one that passes.
	failingAfter = 3
	// failingRead and failingShown are how many users are looked at, and how many are findings of their own.
	failingRead  = 1000
	failingShown = 10
)

// failingUsers tells of users whose deletion fails again and again, as with a constraint that the ghost user does not meet:
// only the application's people can say what is wrong with their rows.
func failingUsers(ctx context.Context, db database.Database) (found []doctor.Finding, _ error) {
	failed, err := ghostuser.ReadFailed(ctx, db.Pool, db.Names, failingRead)
	if err != nil {
		return nil, err
	}
	failed = slices.DeleteFunc(failed, func(user ghostuser.Waiting) bool { return user.Attempts < failingAfter })
	for i, user := range failed {
		if i == failingShown {
			return append(found, doctor.Finding{
				Severity: problem.Warning, Object: "table " + ghostQueue,
				Message: fmt.Sprintf("it is the same with %s more", words.Counted(int64(len(failed)-i), "user")),
				Fix:     "see the failures on the web page",
			}), nil
		}
		found = append(found, doctor.Finding{
			Severity: problem.Warning, Object: fmt.Sprintf("user %d", user.UserID),
			Message: fmt.Sprintf("its deletion has failed %d times, and holds up no other: %s", user.Attempts, user.LastError),
			Fix:     "change the rows or the constraint that the error names; the next attempt is made by itself, or at once with retry on the web page",
		})
	}
	return found, nil
}

// givenUpPlaceholders tells of placeholders that no worker will try again.
func (x *examination) givenUpPlaceholders(ctx context.Context, db database.Database) ([]doctor.Finding, error) {
	backlog, err := placeholder.ReadBacklog(ctx, db.Pool, db.Names, riverjobs.PlaceholderRules(x.Config))
	if err != nil || backlog.GivenUp == 0 {
		return nil, err
	}
	return []doctor.Finding{{
		Severity: problem.Warning, Object: "table " + placeholderTable,
		Message: fmt.Sprintf("%s given up after %d attempts", words.Counted(backlog.GivenUp, "placeholder user"), x.Config.PlaceholderUsers.MaxAttempts),
		Fix:     "see `sexton placeholders list --given-up` for what refers to them, remove that, and run `sexton placeholders retry ID`, or with --all",
	}}, nil
}
