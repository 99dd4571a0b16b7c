package ghostuser

import (
	"context"
	"slices"

	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// MissingPrivileges lists the privileges that the role of db lacks to delete users.
// Without these privileges a run defers the users with rows in the affected tables, and
// deletes other users.
func MissingPrivileges(ctx context.Context, db pgcatalog.Beginner, plan *Plan) (problem.List, error) {
	users := plan.users.OID
	needs := []dml.Need{
		{Table: users, Privilege: "SELECT"},
		{Table: users, Privilege: "UPDATE"},
		{Table: users, Privilege: "DELETE"},
	}
	for _, s := range slices.Concat(plan.soft, plan.hard) {
		actions := []dml.Action{s.Action}
		if s.Action != dml.Forbid {
			actions = append(actions, s.otherwise)
		}
		needs = append(needs, s.Needs(0, actions...)...)
	}
	return dml.Lacking(ctx, db, needs, func(int) problem.Problem { return problem.Problem{Key: section} })
}
