package doctor

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// right is one privilege on one object of Sexton's.
type right struct{ kind, schema, name, privilege string }

var (
	remarks = regexp.MustCompile(`(?m)^--.*$`)
	grants  = regexp.MustCompile(`(?s)GRANT ([A-Z, ]+?)\s+ON (TABLE|SCHEMA|SEQUENCE|FUNCTION) (.+?)\s+TO ([^;]+);`)
	objects = regexp.MustCompile(`"(sexton|public)"(?:\.(\w+)(?:\([^)]*\))?)?`)
)

// needs reads the worker's rights out of the statements that grant them, so that there is one list of them.
func needs(sql string, names pgcatalog.Names) []right {
	var rights []right
	for _, grant := range grants.FindAllStringSubmatch(remarks.ReplaceAllString(sql, ""), -1) {
		if !strings.Contains(grant[4], `:"worker"`) {
			continue
		}
		for _, object := range objects.FindAllStringSubmatch(grant[3], -1) {
			schema := pgcatalog.Schema
			if object[1] == "public" {
				schema = names.Tracked
			}
			for privilege := range strings.SplitSeq(grant[1], ",") {
				rights = append(rights, right{kind: grant[2], schema: schema, name: object[2], privilege: strings.TrimSpace(privilege)})
			}
		}
	}
	return rights
}

// privileges compares what the role may do with Sexton's own tables with what a worker does.
func (t Target) privileges(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	var kinds, schemas, names, wanted []string
	// Subscriptions go to sleep only once the writers that pg_locks shows have ended. Everybody may read it, unless that was taken away.
	rights := append(needs(t.Grants, t.Database.Names), right{kind: "TABLE", schema: "pg_catalog", name: "pg_locks", privilege: "SELECT"})
	for _, r := range rights {
		kinds, schemas, names, wanted = append(kinds, r.kind), append(schemas, r.schema), append(names, r.name), append(wanted, r.privilege)
	}
	type row struct {
		Kind, Object, Missing string
		Hidden                bool
		Role                  string
	}
	return query(ctx, tx, "read privileges", sqlText("privileges"), []any{kinds, schemas, names, wanted}, func(r row) (found []Finding) {
		if r.Missing != "" {
			found = One(problem.Error, r.Object, fmt.Sprintf("role %s lacks %s on %s %s", r.Role, r.Missing, r.Kind, r.Object),
				fmt.Sprintf("GRANT %s ON %s %s TO %s", r.Missing, strings.ToUpper(r.Kind), r.Object, r.Role))
		}
		if r.Hidden {
			found = append(found, One(problem.Error, r.Object, fmt.Sprintf("row-level security hides rows of %s from role %s", r.Object, r.Role),
				fmt.Sprintf("ALTER ROLE %s BYPASSRLS", r.Role))...)
		}
		return found
	})
}

// partitions asks whether workers can track the partitions that come later.
func (t Target) partitions(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	schemas, tables := t.tables()
	type row struct{ Table, Grant, Role string }
	args := []any{schemas, tables, pgcatalog.Schema}
	return query(ctx, tx, "look at partitioned parents", sqlText("partitions"), args, func(r row) []Finding {
		return One(problem.Warning, r.Table, fmt.Sprintf("role %s cannot put triggers on new partitions of %s, "+
			"so what is deleted by naming one of them goes unrecorded", r.Role, r.Table),
			r.Grant+", or run `sexton triggers install` as the owner after each new partition")
	})
}

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
		return One(problem.Error, "search_path",
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
		return One(severity, "role "+r.Role, message, "connect workers as a role of their own, with the rights that sexton migrate up --print-grants prints")
	})
}
