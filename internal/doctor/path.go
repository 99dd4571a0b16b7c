package doctor

import (
	"context"
	"fmt"
	"strings"

	"sexton/internal/problem"
)

// path finds sessions that would find other people's functions by the names of Postgres's own. Direct ones begin with a path of
// their own; a pooler takes none.
func (t Target) path(ctx context.Context) ([]Finding, error) {
	found, err := t.superusers(ctx)
	if err != nil {
		return nil, err
	}
	type row struct {
		Path, Role string
		Open       []string
	}
	open, err := query(ctx, t.Database.Pool, "read the search_path", sqlText("path"), nil, func(r row) []Finding {
		if len(r.Open) == 0 {
			return nil
		}
		return one(problem.Error, "search_path",
			fmt.Sprintf("sessions of role %s begin with search_path %s, and other roles may create functions in %s, which then run with its rights",
				r.Role, r.Path, strings.Join(r.Open, ", ")),
			fmt.Sprintf("ALTER ROLE %s SET search_path = pg_catalog, pg_temp, and have the pooler reconnect", r.Role))
	})
	return append(found, open...), err
}

// superusers finds workers with whose rights the triggers of tracked tables could do anything. That the operator is a superuser is
// normal for an installation, and only worth a line.
func (t Target) superusers(ctx context.Context) ([]Finding, error) {
	type row struct {
		Role  string
		Works bool
	}
	return query(ctx, t.Database.Pool, "look for superusers", sqlText("superusers"), nil, func(r row) []Finding {
		severity, message := problem.Info,
			r.Role+" is a superuser: a worker that connects as this role runs triggers of the application's tables with all its rights"
		if r.Works {
			severity = problem.Warning
			message = fmt.Sprintf("a worker connects as %s, a superuser: triggers of the application's tables run with all its rights", r.Role)
		}
		return one(severity, "role "+r.Role, message, "connect workers as a role of their own, with the rights that sexton migrate up --print-grants prints")
	})
}
