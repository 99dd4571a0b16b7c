package riverjobs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/drain/dml"
	"sexton/internal/groupdelete"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// checkGroups reports what the configured table of groups and the rule lack. GitLab's groups have their check in the migration.
func checkGroups(ctx context.Context, c *config.Config, jobs database.Database) (problem.List, error) {
	of := c.AdjournedGroups.Groups
	if of.Table == "" {
		return nil, nil
	}
	_, problems, err := groupdelete.Resolve(ctx, jobs.Pool, jobs.Names, GroupsOf(c), c.Has(migrate.GhostUsers))
	if err != nil {
		return nil, err
	}
	err = pgcatalog.Settled(ctx, jobs.Pool, func(tx pgx.Tx) error {
		oids, err := pgcatalog.Named(ctx, tx, []string{jobs.Names.Tracked}, []string{of.Table})
		if err != nil {
			return err
		}
		relations, err := pgcatalog.Read(ctx, tx, oids)
		if err != nil {
			return err
		}
		for _, table := range relations {
			group, user := checkGroupColumns(&problems, c.AdjournedGroups, table)
			if rule := c.AdjournedGroups.MayRemove; rule != "" && group != "" && user != "" {
				wrong, fix, err := pgcatalog.RuleProblem(ctx, tx, jobs.Names.Tracked, rule, "text", group, user)
				if err != nil {
					return err
				}
				if wrong != "" {
					problems.Add(problem.Problem{Severity: problem.Error, Key: migrate.AdjournedGroups + ".may_remove", Message: wrong, Fix: fix})
				}
			}
		}
		return nil
	})
	return problems, problem.Doing(err, "look at the table of groups")
}

// checkGroupColumns reports columns that are missing or have another type. It returns the types of the keys of groups and of users who ask
// for their deletion, or "" if they are unknown.
func checkGroupColumns(problems *problem.List, c config.AdjournedGroups, table *pgcatalog.Relation) (group, user string) {
	group, _ = dml.IDType(table.Columns[c.Groups.Key].Base)
	key := func(base string) bool {
		_, err := dml.IDType(base)
		return err == nil
	}
	check := func(where, name, want string, fits func(base string) bool) {
		if name == "" {
			return
		}
		wrong, fix := "", ""
		if column, found := table.Columns[name]; !found {
			wrong, fix = fmt.Sprintf("table %s has no column %s", table.Name, name), problem.Meant(name, table.ColumnNames(), "correct the name")
		} else if !fits(column.Base) {
			wrong, fix = fmt.Sprintf("%s.%s is of type %s instead of %s", table.Name, name, column.Type, want), "name another column"
		}
		if wrong != "" {
			problems.Add(problem.Problem{Severity: problem.Error, Key: migrate.AdjournedGroups + "." + where, Message: wrong, Fix: fix})
		}
	}
	check("groups.marked_on", c.Groups.MarkedOn, "date", func(base string) bool { return base == "pg_catalog.date" })
	check("groups.marked_by", c.Groups.MarkedBy, "bigint, integer, uuid or text", key)
	check("period_column", c.PeriodColumn, "an integer", pgcatalog.Integer)
	for i, name := range c.Rename {
		check(fmt.Sprintf("rename[%d]", i), name, "", func(string) bool { return true })
	}
	if parent, found := table.Columns[c.Groups.Parent]; found && group != "" { // If it is missing, the plan reports it.
		check("groups.parent", parent.Name, "that of the key", func(base string) bool {
			stored, _ := dml.IDType(base)
			return stored == group
		})
	}
	if c.Groups.MarkedBy == "" {
		return group, group
	}
	user, _ = dml.IDType(table.Columns[c.Groups.MarkedBy].Base)
	return group, user
}
