package loosefk

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// One row per table that statements address, in the order given, with a JSON array of the columns that they write. A
// deletion needs UPDATE as well, on any
// column: batches lock the rows that they have found. Row-level security is asked for apart, as no grant
// helps against it.
const privilegesSQL = `
SELECT pg_catalog.has_schema_privilege(class.relnamespace, 'USAGE'),
       pg_catalog.has_table_privilege(class.oid, 'SELECT')
           AND CASE
               WHEN wanted.updated = '[]' THEN pg_catalog.has_table_privilege(class.oid, 'DELETE') AND pg_catalog.has_any_column_privilege(class.oid, 'UPDATE')
               ELSE (
                   SELECT pg_catalog.bool_and(pg_catalog.has_column_privilege(class.oid, name, 'UPDATE'))
                   FROM pg_catalog.jsonb_array_elements_text(wanted.updated::pg_catalog.jsonb) AS name
               )
           END,
       pg_catalog.row_security_active(class.oid),
       pg_catalog.format('%I.%I', namespace.nspname, class.relname),
       pg_catalog.format('%I', namespace.nspname),
       pg_catalog.format('%I', current_user)
FROM unnest($1::pg_catalog.oid[], $2::pg_catalog.text[]) WITH ORDINALITY AS wanted (oid, updated, position)
JOIN pg_catalog.pg_class AS class ON class.oid = wanted.oid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
ORDER BY wanted.position`

// MissingPrivileges lists what the connected role lacks to clean up those children of parents that are in one database.
// Only passes need it: triggers are installed and compared without.
func MissingPrivileges(ctx context.Context, db pgcatalog.Beginner, database string, parents []*Parent) (problem.List, error) {
	var needs []*Reference
	var oids []uint32
	var updated []string
	for _, parent := range parents {
		for _, reference := range parent.References {
			if reference.Database != database || !reference.usable() {
				continue
			}
			tables := reference.Leaves
			if reference.Partitioned() {
				tables = append([]Table{reference.Child}, tables...) // looked through for children that are left
			}
			columns, err := json.Marshal(reference.updatedColumns())
			if err != nil {
				return nil, fmt.Errorf("list columns of %s: %w", reference.Definition.Key, err)
			}
			for _, table := range tables {
				needs, oids, updated = append(needs, reference), append(oids, table.OID), append(updated, string(columns))
			}
		}
	}
	var problems problem.List
	err := pgcatalog.Settled(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, privilegesSQL, oids, updated)
		if err != nil {
			return err
		}
		var usage, granted, hidden bool
		var table, schema, role string
		at := 0
		_, err = pgx.ForEachRow(rows, []any{&usage, &granted, &hidden, &table, &schema, &role}, func() error {
			d := needs[at].Definition
			at++
			report := func(message, fix string) {
				problems.Add(problem.Problem{Position: d.Position, Key: d.Key, Message: message, Fix: fix})
			}
			if !usage {
				report("the database role may not use schema "+schema, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", schema, role))
			}
			if !granted {
				report("the database role may not clean up table "+table, fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(privileges(d), ", "), table, role))
			}
			if hidden {
				report("row-level security hides rows of "+table+" from the database role", fmt.Sprintf("ALTER ROLE %s BYPASSRLS", role))
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

func privileges(d definitions.Definition) []string {
	if d.OnDelete == definitions.Delete {
		return []string{"SELECT", "UPDATE", "DELETE"}
	}
	return []string{"SELECT", "UPDATE"}
}

// updatedColumns are the columns that the reference's statements write; none where they delete.
func (r *Reference) updatedColumns() []string {
	switch r.Definition.OnDelete {
	case definitions.Nullify:
		return r.Definition.Columns
	case definitions.UpdateColumn:
		return []string{r.Definition.TargetColumn}
	default:
		return []string{}
	}
}
