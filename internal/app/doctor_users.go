package app

import (
	"context"
	"fmt"

	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/ghostuser"
	"sexton/internal/placeholder"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// bindGhostUsers holds the lists of users' columns against the jobs database.
func (x *examination) bindGhostUsers(ctx context.Context) {
	for _, db := range x.databases {
		if db.Name == x.config.Jobs.Database {
			x.report.Run(ctx, "ghost_users", db.Name, func(ctx context.Context) ([]doctor.Finding, error) {
				plan, found, err := riverjobs.CheckGhostUsers(ctx, x.config, db, db.Pool)
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
	for _, db := range x.databases {
		if db.Name == x.config.Jobs.Database {
			x.report.Run(ctx, "placeholder_users", db.Name, func(ctx context.Context) ([]doctor.Finding, error) {
				_, found, err := riverjobs.CheckPlaceholderUsers(ctx, x.config, db, db.Pool)
				return asFindings(found), err
			})
		}
	}
}

// givenUpPlaceholders tells of placeholders that nobody will try again.
func (x *examination) givenUpPlaceholders(ctx context.Context, db database.Database) ([]doctor.Finding, error) {
	backlog, err := placeholder.ReadBacklog(ctx, db.Pool, db.Names, riverjobs.PlaceholderRules(x.config))
	if err != nil || backlog.GivenUp == 0 {
		return nil, err
	}
	return []doctor.Finding{{
		Severity: problem.Warning, Object: "table " + placeholderTable,
		Message: fmt.Sprintf("%s given up after %d attempts", counted(backlog.GivenUp, "placeholder user"), x.config.PlaceholderUsers.MaxAttempts),
		Fix:     "see `sexton placeholders list --given-up` for what refers to them, remove that, and run `sexton placeholders retry ID`",
	}}, nil
}
