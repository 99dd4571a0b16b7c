package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// One row per reference that lacks an index, with the tables that lack it.
const indexesSQL = `
SELECT pg_catalog.format('%I.%I', namespace.nspname, root.relname),
       (SELECT pg_catalog.string_agg(pg_catalog.format('%I', key.name), ', ' ORDER BY key.place)
           FROM pg_catalog.unnest(wanted.names) WITH ORDINALITY AS key (name, place)),
       root.relkind OPERATOR(pg_catalog.=) 'p', wanted.leaves,
       ARRAY(
           SELECT pg_catalog.format('%I.%I', home.nspname, leaf.relname)
           FROM pg_catalog.pg_class AS leaf
           JOIN pg_catalog.pg_namespace AS home ON home.oid OPERATOR(pg_catalog.=) leaf.relnamespace
           WHERE leaf.oid OPERATOR(pg_catalog.=) ANY (wanted.unindexed)
           ORDER BY leaf.oid
       )
FROM (
    SELECT DISTINCT schema, relation, names, leaves, unindexed
    FROM pg_catalog.jsonb_to_recordset($1) AS given (
        schema pg_catalog.text, relation pg_catalog.text, names pg_catalog.text[], leaves pg_catalog.int4, unindexed pg_catalog.oid[]
    )
    WHERE pg_catalog.cardinality(unindexed) OPERATOR(pg_catalog.>) 0
) AS wanted
JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname OPERATOR(pg_catalog.=) wanted.schema
JOIN pg_catalog.pg_class AS root ON root.relnamespace OPERATOR(pg_catalog.=) namespace.oid AND root.relname OPERATOR(pg_catalog.=) wanted.relation
ORDER BY 1, 2`

// indexes looks for referring columns without an index.
func (t Target) indexes(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	references := append([]Reference{}, t.References...) // JSON's null is no list.
	type row struct {
		Table, Columns string
		Partitioned    bool
		Leaves         int
		Missing        []string
	}
	found, err := query(ctx, tx, indexesSQL, []any{references}, func(r row) Finding {
		statements := make([]string, 0, len(r.Missing)+1)
		for _, leaf := range r.Missing {
			statements = append(statements, fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s)", leaf, r.Columns))
		}
		where := "index of " + r.Table
		if r.Partitioned {
			// CONCURRENTLY is refused on a partitioned table. Without it the statement takes over the indexes that
			// the partitions have by then, in a moment, and gives one to partitions that come later.
			statements = append(statements, fmt.Sprintf("CREATE INDEX ON %s (%s)", r.Table, r.Columns))
			where = fmt.Sprintf("index of %d of the %d partitions of %s", len(r.Missing), r.Leaves, r.Table)
		}
		return Finding{
			Severity: problem.Warning, Object: object(r.Table, r.Columns),
			Message: fmt.Sprintf("no %s begins with %s, so every batch reads the whole table", where, r.Columns),
			Fix:     strings.Join(statements, "; "),
		}
	})
	if err != nil {
		return nil, fmt.Errorf("look for indexes: %w", err)
	}
	return found, nil
}

// object names a column of a table, or several.
func object(table, columns string) string {
	if strings.Contains(columns, ", ") {
		return table + " (" + columns + ")"
	}
	return table + "." + columns
}
