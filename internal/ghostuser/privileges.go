package ghostuser

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// need is a privilege on a table. UPDATE is needed on a column or, where none is named, on any: who locks a row needs that
// much.
type need struct {
	table             uint32
	privilege, column string
}

// needs are those of all that the plan does, in its order.
func (p *Plan) needs() []need {
	needs := []need{{p.users.OID, "SELECT", ""}, {p.users.OID, "UPDATE", ""}, {p.users.OID, "DELETE", ""}}
	for _, s := range slices.Concat(p.soft, p.hard) {
		if s.partitioned() {
			needs = append(needs, need{s.table.OID, "SELECT", ""}) // looked through for rows that are left
		}
		for _, leaf := range s.leaves {
			needs = append(needs, need{leaf.OID, "SELECT", ""})
			if s.action == restrict {
				continue
			}
			if s.action == remove || s.otherwise == remove {
				needs = append(needs, need{leaf.OID, "UPDATE", ""}, need{leaf.OID, "DELETE", ""})
			}
			if s.action != remove {
				needs = append(needs, need{leaf.OID, "UPDATE", s.column})
			}
		}
	}
	return needs
}

// Row-level security is asked for apart, as no grant helps against it.
const privilegesSQL = `
WITH judged AS (
    SELECT wanted.*, CASE
        WHEN wanted.privilege <> 'UPDATE' THEN pg_catalog.has_table_privilege(wanted.oid, wanted.privilege)
        WHEN wanted.name = '' THEN pg_catalog.has_any_column_privilege(wanted.oid, 'UPDATE')
        ELSE pg_catalog.has_column_privilege(wanted.oid, wanted.name, 'UPDATE')
    END AS granted
    FROM unnest($1::pg_catalog.oid[], $2::pg_catalog.text[], $3::pg_catalog.text[]) WITH ORDINALITY AS wanted (oid, privilege, name, position)
)
SELECT pg_catalog.format('%I.%I', namespace.nspname, class.relname),
       CASE WHEN pg_catalog.has_schema_privilege(class.relnamespace, 'USAGE') THEN '' ELSE pg_catalog.format('%I', namespace.nspname) END,
       coalesce(pg_catalog.array_agg(DISTINCT judged.privilege ORDER BY judged.privilege) FILTER (WHERE NOT judged.granted), '{}'),
       pg_catalog.row_security_active(class.oid),
       pg_catalog.format('%I', current_user)
FROM judged
JOIN pg_catalog.pg_class AS class ON class.oid = judged.oid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
GROUP BY class.oid, class.relname, class.relnamespace, namespace.nspname
ORDER BY pg_catalog.min(judged.position)`

// MissingPrivileges lists what the connected role lacks to delete users by the plan. A run meets it only with users who have
// rows there, and puts those off.
func MissingPrivileges(ctx context.Context, db pgcatalog.Beginner, plan *Plan) (problem.List, error) {
	var oids []uint32
	var wanted, columns []string
	for _, n := range plan.needs() {
		oids, wanted, columns = append(oids, n.table), append(wanted, n.privilege), append(columns, n.column)
	}
	var problems problem.List
	err := pgcatalog.Settled(ctx, db, func(tx pgx.Tx) error {
		problems = nil
		rows, err := tx.Query(ctx, privilegesSQL, oids, wanted, columns)
		if err != nil {
			return err
		}
		report := func(fix, format string, args ...any) {
			problems.Add(problem.Problem{Key: section, Message: fmt.Sprintf(format, args...), Fix: fix})
		}
		var table, schema, role string
		var missing []string
		var hidden bool
		_, err = pgx.ForEachRow(rows, []any{&table, &schema, &missing, &hidden, &role}, func() error {
			if schema != "" {
				report(fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", schema, role), "the database role may not use schema %s, where %s is", schema, table)
			}
			if lacks := strings.Join(missing, ", "); lacks != "" {
				report(fmt.Sprintf("GRANT %s ON %s TO %s", lacks, table, role), "the database role lacks %s on table %s", lacks, table)
			}
			if hidden {
				report(fmt.Sprintf("ALTER ROLE %s BYPASSRLS", role), "row-level security hides rows of %s from the database role", table)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read privileges: %w", err)
	}
	return problems, nil
}
