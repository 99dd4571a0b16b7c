package doctor

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

//go:embed queries/path.sql
var pathSQL string

// path finds sessions that would find other people's functions by the names of Postgres's own. Direct ones begin with a path of
// their own; a pooler takes none.
func (t Target) path(ctx context.Context) ([]Finding, error) {
	var path, role string
	var open []string
	if err := t.Database.Pool.QueryRow(ctx, pathSQL).Scan(&path, &role, &open); err != nil {
		return nil, fmt.Errorf("read the search_path: %w", err)
	}
	found, err := t.superusers(ctx)
	if err != nil || len(open) == 0 {
		return found, err
	}
	return append(found, Finding{
		Severity: problem.Error, Object: "search_path",
		Message: fmt.Sprintf("sessions of role %s begin with search_path %s, and other roles may create functions in %s, which then run with its rights",
			role, path, strings.Join(open, ", ")),
		Fix: fmt.Sprintf("ALTER ROLE %s SET search_path = pg_catalog, pg_temp, and have the pooler reconnect", role),
	}), nil
}

//go:embed queries/superusers.sql
var superusersSQL string

// superusers finds workers with whose rights the triggers of tracked tables could do anything. That the operator is a superuser is
// normal for an installation, and only worth a line.
func (t Target) superusers(ctx context.Context) (found []Finding, err error) {
	rows, err := t.Database.Pool.Query(ctx, superusersSQL)
	if err != nil {
		return nil, fmt.Errorf("look for superusers: %w", err)
	}
	var role string
	var works bool
	_, err = pgx.ForEachRow(rows, []any{&role, &works}, func() error {
		finding := Finding{
			Severity: problem.Info, Object: "role " + role,
			Message: role + " is a superuser: a worker that connects as this role runs triggers of the application's tables with all its rights",
			Fix:     "connect workers as a role of their own, with the rights that sexton migrate up --print-grants prints",
		}
		if works {
			finding.Severity = problem.Warning
			finding.Message = fmt.Sprintf("a worker connects as %s, a superuser: triggers of the application's tables run with all its rights", role)
		}
		found = append(found, finding)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for superusers: %w", err)
	}
	return found, nil
}
