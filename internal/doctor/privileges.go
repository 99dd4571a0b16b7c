package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// privileges finds privileges on Sexton's tables that a worker needs and the role lacks.
// It also finds tables whose rows row-level security hides from the role.
func (t Target) privileges(ctx context.Context, tx pgx.Tx) (found []Finding, _ error) {
	role, err := t.role(ctx, tx)
	if err != nil {
		return nil, err
	}
	lacks, err := t.Schema.Lacks(ctx, tx, migrate.Roles{Worker: role}, nil)
	for _, l := range lacks {
		if !l.Optional {
			message := fmt.Sprintf("role %s lacks %s on %s %s", l.Role, l.Privileges, l.Kind, l.Object)
			found = append(found, One(problem.Error, l.Object, message, l.Statement)...)
		}
	}
	if err != nil {
		return nil, err
	}
	type row struct{ Object, Role string }
	hidden, err := query(ctx, tx, "read privileges", sqlText("hidden"), []any{role, t.Database.Names.Tracked},
		func(r row) []Finding {
			return One(problem.Error, r.Object, fmt.Sprintf("row-level security hides rows of %s from role %s",
				r.Object,
				r.Role),
				fmt.Sprintf("ALTER ROLE %s BYPASSRLS", r.Role))
		})
	return append(found, hidden...), err
}

// FindRole returns the role whose privileges are checked: the named role, else the role
// of the newest running worker, else the role of the connection. If the named role does
// not exist, it returns a finding.
func FindRole(ctx context.Context, db database.Database, named string) (role Role, found []Finding, err error) {
	var connected string
	var works bool
	role.Name = named
	err = db.Pool.QueryRow(ctx, sqlText("role"), named).Scan(&role.Name, &connected, &works)
	if errors.Is(err, pgx.ErrNoRows) {
		return role, One(problem.Error, "role "+quote(named), "the role does not exist",
			"CREATE ROLE "+quote(named)+" LOGIN"), nil
	}
	role.Other, role.Source = role.Name != connected, OfURL
	switch {
	case named != "":
		role.Source = Named
	case works:
		role.Source = Worker
	}
	return role, nil, problem.Doing(err, "query the role of the worker")
}

// role returns the name of the checked role. The default is the role of the connection.
func (t Target) role(ctx context.Context, tx pgx.Tx) (name string, err error) {
	if t.Role.Name != "" {
		return t.Role.Name, nil
	}
	err = tx.QueryRow(ctx, "SELECT current_user").Scan(&name)
	return name, problem.Doing(err, "query the role")
}

// partitions finds partitioned parents for which workers cannot create triggers on new
// partitions.
func (t Target) partitions(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	schemas, tables := t.tables()
	type row struct{ Table, Grant, Role string }
	args := []any{schemas, tables, pgcatalog.Schema, t.Role.Name}
	return query(ctx, tx, "query partitioned parents", sqlText("partitions"), args, func(r row) []Finding {
		return One(problem.Warning, r.Table, fmt.Sprintf("role %s cannot create triggers on new partitions of %s, "+
			"so deletions that name a new partition are not recorded until the owner runs `sexton triggers install`", r.Role, r.Table), r.Grant)
	})
}

// path finds a search_path with a schema in which other roles may create functions. Such
// a function could replace a function of Postgres. Direct connections set their own
// search_path, but a pooler does not pass it on.
func (t Target) path(ctx context.Context) ([]Finding, error) {
	type row struct {
		Path, Role string
		Open       []string
	}
	return query(ctx, t.Database.Pool, "read the search_path", sqlText("path"), nil, func(r row) []Finding {
		if len(r.Open) == 0 {
			return nil
		}
		return One(problem.Error, "search_path",
			fmt.Sprintf("sessions of role %s begin with search_path %s, and other roles may create functions in %s, which would run with its privileges: "+
				"set the path, then restart the connections of the pooler",
				r.Role, r.Path, strings.Join(r.Open, ", ")),
			fmt.Sprintf("ALTER ROLE %s SET search_path = pg_catalog, pg_temp", r.Role))
	})
}

// superusers finds workers that connect as a superuser, because triggers of tracked
// tables run with the privileges of that role. If no worker uses the checked role, the
// finding is only information, because the role may be the operator's own.
func (t Target) superusers(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	type row struct {
		Role  string
		Works bool
	}
	return query(ctx, tx, "query superusers", sqlText("superusers"), []any{t.Role.Name}, func(r row) []Finding {
		severity, message := problem.Info,
			r.Role+" is a superuser: if a worker connects as this role, triggers of the application's tables run with superuser privileges"
		if r.Works {
			severity = problem.Warning
			message = fmt.Sprintf("a worker connects as %s, a superuser: triggers of the application's tables run with superuser privileges", r.Role)
		}
		return One(severity, "role "+r.Role, message,
			"connect workers as a separate role with the privileges that `sexton grants --worker ROLE` prints")
	})
}
