package riverjobs

import (
	"context"
	"slices"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/groupdelete"
	"sexton/internal/migrate"
	"sexton/internal/problem"
)

// checkGroups returns the problems of the tables of groups and of the rule function.
func checkGroups(ctx context.Context, c *config.Config, jobs database.Database) (problem.List, error) {
	var found problem.List
	if c.AdjournedGroups.Groups.Table != "" { // doctor reports the problems of tables that refer to GitLab's groups.
		var err error
		if _, found, err = groupdelete.Resolve(ctx, jobs.Pool, jobs.Names, GroupsOf(c),
			c.Has(migrate.GhostUsers)); err != nil {
			return nil, err
		}
	}
	return withUnmet(ctx, c, jobs, migrate.AdjournedGroups, found)
}

// checkDiffs returns the problems of the tables of diffs.
func checkDiffs(ctx context.Context, c *config.Config, jobs database.Database) (problem.List, error) {
	return withUnmet(ctx, c, jobs, migrate.ExternalDiffs, nil)
}

// withUnmet returns the problems of the component's tables and rule function, together
// with more. It drops duplicates and adds positions in the file.
func withUnmet(ctx context.Context, c *config.Config, db database.Database, component string,
	more problem.List,
) (problem.List, error) {
	found, err := migrate.Unmet(ctx, migrate.Database{
		Name: db.Name, Conn: db.Direct, Sessions: db.Sessions, TrackedSchema: db.Names.Tracked, Jobs: true,
		Components: []string{component},
		Users:      TableOfUsers(c), Groups: TableOfGroups(c),
	})
	for _, p := range more {
		if !slices.ContainsFunc(found, func(other problem.Problem) bool {
			return other.Key == p.Key &&
				other.Message == p.Message
		}) {
			found = append(found, p)
		}
	}
	return Placed(c, found), err
}

// TableOfGroups converts the configured table of groups for migrations.
func TableOfGroups(c *config.Config) migrate.Groups {
	a := c.AdjournedGroups
	if a.Groups.Table == "" {
		return migrate.Groups{}
	}
	return migrate.Groups{
		Table: a.Groups.Table, Key: a.Groups.Key, Parent: a.Groups.Parent, MarkedOn: a.Groups.MarkedOn,
		MarkedBy: a.Groups.MarkedBy,
		Period:   int(a.Period), PeriodColumn: a.PeriodColumn, Rename: a.Rename, MayRemove: a.MayRemove,
	}
}

// TableOfUsers converts the configured table of users for migrations.
func TableOfUsers(c *config.Config) migrate.Users {
	users := migrate.Users{Table: c.GhostUsers.Users.Table}
	if users.Table != "" {
		g := c.GhostUsers
		users = migrate.Users{
			Table: g.Users.Table, Key: g.Users.Key, Ghost: string(g.Ghost), MayDelete: g.MayDelete,
			OnRequest: map[string]string{},
		}
		for column, value := range g.OnRequest.Set {
			users.OnRequest[column] = string(value)
		}
	}
	return users
}
