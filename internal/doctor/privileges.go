package doctor

import (
	"context"
	_ "embed"
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

// Objects are looked up in the catalogue, as resolving their names would need the very rights that are in
// question. Missing objects lack no right; NULL stands for them. No function of ours is overloaded.
const privilegesSQL = `
WITH wanted AS (
    SELECT wanted.*, namespace.oid AS namespace, class.oid AS class, proc.oid AS proc
    FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.text[], $4::pg_catalog.text[])
        WITH ORDINALITY AS wanted (kind, schema, name, privilege, position)
    LEFT JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = wanted.schema
    LEFT JOIN pg_catalog.pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = wanted.name AND wanted.kind IN ('TABLE', 'SEQUENCE')
    LEFT JOIN pg_catalog.pg_proc AS proc ON proc.pronamespace = namespace.oid AND proc.proname = wanted.name AND wanted.kind = 'FUNCTION'
), judged AS (
    SELECT wanted.*,
        CASE wanted.kind
            WHEN 'SCHEMA' THEN pg_catalog.has_schema_privilege(wanted.namespace, wanted.privilege)
            WHEN 'TABLE' THEN pg_catalog.has_table_privilege(wanted.class, wanted.privilege)
            WHEN 'SEQUENCE' THEN pg_catalog.has_sequence_privilege(wanted.class, wanted.privilege)
            ELSE pg_catalog.has_function_privilege(wanted.proc, wanted.privilege)
        END AS granted,
        wanted.kind = 'TABLE' AND coalesce(pg_catalog.row_security_active(wanted.class), false) AS hidden
    FROM wanted
)
SELECT pg_catalog.lower(judged.kind),
       CASE judged.kind
           WHEN 'SCHEMA' THEN pg_catalog.format('%I', judged.schema)
           WHEN 'FUNCTION' THEN pg_catalog.format('%I.%I(%s)', judged.schema, judged.name, pg_catalog.pg_get_function_identity_arguments(judged.proc))
           ELSE pg_catalog.format('%I.%I', judged.schema, judged.name)
       END,
       coalesce(pg_catalog.string_agg(judged.privilege, ', ' ORDER BY judged.position) FILTER (WHERE NOT judged.granted), ''),
       pg_catalog.bool_or(judged.hidden),
       pg_catalog.format('%I', current_user)
FROM judged
WHERE NOT judged.granted OR judged.hidden
GROUP BY judged.kind, judged.schema, judged.name, judged.proc
ORDER BY pg_catalog.min(judged.position)`

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
	return query(ctx, tx, "read privileges", privilegesSQL, []any{kinds, schemas, names, wanted}, func(r row) (found []Finding) {
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

//go:embed queries/partitions.sql
var partitionsSQL string

// partitions asks whether workers can track the partitions that come later.
func (t Target) partitions(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	schemas, tables := t.tables()
	type row struct{ Table, Grant, Role string }
	args := []any{schemas, tables, t.Database.Names.Jobs, triggers.EventTrigger}
	return query(ctx, tx, "look at partitioned parents", partitionsSQL, args, func(r row) []Finding {
		return one(problem.Warning, r.Table, fmt.Sprintf("role %s cannot put triggers on new partitions of %s, "+
			"so what is deleted by naming one of them goes unrecorded", r.Role, r.Table),
			r.Grant+", or `sexton triggers install --event-trigger`, or run `sexton triggers install` as the owner after each new partition")
	})
}
