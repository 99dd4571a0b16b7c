package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// Schemas of the path in which a role may create that neither is a superuser nor this one. It is read as sessions begin, so in no
// transaction of ours.
const pathSQL = `
SELECT pg_catalog.current_setting('search_path'), pg_catalog.format('%I', current_user),
    coalesce(pg_catalog.array_agg(pg_catalog.format('%I', namespace.nspname) ORDER BY path.position), ARRAY[]::pg_catalog.text[])
FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS path (name, position)
JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname OPERATOR(pg_catalog.=) path.name
WHERE NOT pg_catalog.starts_with(namespace.nspname::pg_catalog.text, 'pg_')
  AND EXISTS (
      SELECT FROM pg_catalog.pg_roles AS role
      WHERE NOT role.rolsuper
        AND NOT pg_catalog.starts_with(role.rolname::pg_catalog.text, 'pg_')
        AND role.rolname OPERATOR(pg_catalog.<>) current_user
        AND pg_catalog.has_schema_privilege(role.oid, namespace.oid, 'CREATE')
  )`

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

// The superusers among the role that asks and those of workers, whose sessions listen.
const superusersSQL = `
SELECT found.name, found.works
FROM (
    SELECT pg_catalog.format('%I', role.rolname) AS name, role.rolname OPERATOR(pg_catalog.=) current_user AS asks, EXISTS (
        SELECT FROM pg_catalog.pg_stat_activity AS worker
        WHERE worker.usesysid OPERATOR(pg_catalog.=) role.oid
          AND worker.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
          AND pg_catalog.starts_with(worker.application_name, 'sexton')
          AND pg_catalog.lower(worker.query) OPERATOR(pg_catalog.=) 'listen "sexton_wake"'
    ) AS works
    FROM pg_catalog.pg_roles AS role
    WHERE role.rolsuper
) AS found
WHERE found.asks OR found.works
ORDER BY found.name`

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
