package doctor

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgschema"
	"sexton/internal/problem"
	"sexton/triggers"
)

// right is one privilege on one object of Sexton's.
type right struct{ kind, schema, name, privilege string }

var (
	remarks = regexp.MustCompile(`(?m)^--.*$`)
	grants  = regexp.MustCompile(`(?s)GRANT ([A-Z, ]+?)\s+ON (TABLE|SCHEMA|SEQUENCE|FUNCTION) (.+?)\s+TO ([^;]+);`)
	objects = regexp.MustCompile(`"(sexton|public)"(?:\.(\w+)(?:\([^)]*\))?)?`)
)

// needs reads the worker's rights out of the statements that grant them, so that there is one list of them.
func needs(sql string, names pgschema.Names) []right {
	var rights []right
	for _, grant := range grants.FindAllStringSubmatch(remarks.ReplaceAllString(sql, ""), -1) {
		if !strings.Contains(grant[4], `:"worker"`) {
			continue
		}
		for _, object := range objects.FindAllStringSubmatch(grant[3], -1) {
			schema := names.Jobs
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

// MissingRights is the check of privileges alone.
func (t Target) MissingRights(ctx context.Context) ([]Finding, error) {
	return t.read(ctx, t.privileges)
}

// privileges compares what the role may do with Sexton's own tables with what a worker does.
func (t Target) privileges(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	var kinds, schemas, names, wanted []string
	for _, r := range needs(t.Grants, t.Database.Names) {
		kinds, schemas, names, wanted = append(kinds, r.kind), append(schemas, r.schema), append(names, r.name), append(wanted, r.privilege)
	}
	type row struct {
		Kind, Object, Missing string
		Hidden                bool
		Role                  string
	}
	return query(ctx, tx, "read privileges", sqlText("privileges"), []any{kinds, schemas, names, wanted}, func(r row) (found []Finding) {
		if r.Missing != "" {
			found = one(problem.Error, r.Object, fmt.Sprintf("role %s lacks %s on %s %s", r.Role, r.Missing, r.Kind, r.Object),
				fmt.Sprintf("GRANT %s ON %s %s TO %s", r.Missing, strings.ToUpper(r.Kind), r.Object, r.Role))
		}
		if r.Hidden {
			found = append(found, one(problem.Error, r.Object, fmt.Sprintf("row-level security hides rows of %s from role %s", r.Object, r.Role),
				fmt.Sprintf("ALTER ROLE %s BYPASSRLS", r.Role))...)
		}
		return found
	})
}

// partitions asks whether workers can track the partitions that come later.
func (t Target) partitions(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	schemas, tables := t.tables()
	type row struct{ Table, Grant, Role string }
	args := []any{schemas, tables, t.Database.Names.Jobs, triggers.EventTrigger}
	return query(ctx, tx, "look at partitioned parents", sqlText("partitions"), args, func(r row) []Finding {
		return one(problem.Warning, r.Table, fmt.Sprintf("role %s cannot put triggers on new partitions of %s, "+
			"so what is deleted by naming one of them goes unrecorded", r.Role, r.Table),
			r.Grant+", or `sexton triggers install --event-trigger`, or run `sexton triggers install` as the owner after each new partition")
	})
}
