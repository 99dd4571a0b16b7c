package ghostuser

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sexton/internal/drain"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// MissingPrivileges lists what the connected role lacks to delete users by the plan. A run meets it only with users who have
// rows there, and puts those off.
func MissingPrivileges(ctx context.Context, db pgcatalog.Beginner, plan *Plan) (problem.List, error) {
	users := plan.users.OID
	needs := []drain.Need{{Table: users, Privilege: "SELECT"}, {Table: users, Privilege: "UPDATE"}, {Table: users, Privilege: "DELETE"}}
	for _, s := range slices.Concat(plan.soft, plan.hard) {
		actions := []drain.Action{s.Action}
		if s.Action != drain.Forbid {
			actions = append(actions, s.otherwise)
		}
		needs = append(needs, s.Needs(0, actions...)...)
	}
	lacks, err := drain.Lacking(ctx, db, needs)
	if err != nil {
		return nil, err
	}
	var problems problem.List
	report := func(fix, format string, args ...any) {
		problems.Add(problem.Problem{Key: section, Message: fmt.Sprintf(format, args...), Fix: fix})
	}
	for _, lack := range lacks {
		if lack.Schema != "" {
			report(fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", lack.Schema, lack.Role),
				"the database role may not use schema %s, where %s is", lack.Schema, lack.Table)
		}
		if missing := strings.Join(lack.Missing, ", "); missing != "" {
			report(fmt.Sprintf("GRANT %s ON %s TO %s", missing, lack.Table, lack.Role), "the database role lacks %s on table %s", missing, lack.Table)
		}
		if lack.Hidden {
			report(fmt.Sprintf("ALTER ROLE %s BYPASSRLS", lack.Role), "row-level security hides rows of %s from the database role", lack.Table)
		}
	}
	return problems, nil
}
