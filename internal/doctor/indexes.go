package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// One row per column, with those of the table's leaves that no usable index of helps to find rows by the column:
// one that is valid, leads with it, and holds all rows in which it is not NULL.
const indexesSQL = `
SELECT format('%I.%I', namespace.nspname, root.relname), format('%I', wanted.name), root.relkind = 'p', count(*)::int,
       coalesce(array_agg(format('%I.%I', home.nspname, leaf.relname) ORDER BY leaf.oid) FILTER (WHERE NOT served.yes), '{}')
FROM (
    SELECT DISTINCT schema, relation, name FROM unnest($1::text[], $2::text[], $3::text[]) AS given (schema, relation, name)
) AS wanted
JOIN pg_namespace AS namespace ON namespace.nspname = wanted.schema
JOIN pg_class AS root ON root.relnamespace = namespace.oid AND root.relname = wanted.relation AND root.relkind IN ('r', 'p')
CROSS JOIN LATERAL (
    SELECT root.oid WHERE root.relkind = 'r'
    UNION ALL
    SELECT tree.relid FROM pg_partition_tree(root.oid) AS tree WHERE root.relkind = 'p' AND tree.isleaf AND tree.relid <> root.oid
) AS part
JOIN pg_class AS leaf ON leaf.oid = part.oid AND leaf.relkind = 'r'
JOIN pg_namespace AS home ON home.oid = leaf.relnamespace
JOIN pg_attribute AS attribute ON attribute.attrelid = leaf.oid AND attribute.attname = wanted.name AND NOT attribute.attisdropped
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM pg_index AS index
        JOIN pg_class AS class ON class.oid = index.indexrelid
        JOIN pg_am AS method ON method.oid = class.relam AND method.amname IN ('btree', 'hash')
        WHERE index.indrelid = leaf.oid
          AND index.indisvalid
          AND index.indkey[0] = attribute.attnum
          AND (index.indpred IS NULL OR pg_get_expr(index.indpred, index.indrelid) = format('(%I IS NOT NULL)', wanted.name))
    ) AS yes
) AS served
GROUP BY namespace.nspname, root.relname, root.relkind, wanted.name
HAVING bool_or(NOT served.yes)
ORDER BY 1, 2`

// indexes looks for referring columns without an index.
func (t Target) indexes(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	var schemas, tables, columns []string
	for _, c := range t.Columns {
		schemas, tables, columns = append(schemas, c.Schema), append(tables, c.Table), append(columns, c.Column)
	}
	type row struct {
		Table, Column string
		Partitioned   bool
		Leaves        int
		Missing       []string
	}
	found, err := query(ctx, tx, indexesSQL, []any{schemas, tables, columns}, func(r row) Finding {
		statements := make([]string, 0, len(r.Missing)+1)
		for _, leaf := range r.Missing {
			statements = append(statements, fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s)", leaf, r.Column))
		}
		where := "index of " + r.Table
		if r.Partitioned {
			// CONCURRENTLY is refused on a partitioned table. Without it the statement takes over the indexes that
			// the partitions have by then, in a moment, and gives one to partitions that come later.
			statements = append(statements, fmt.Sprintf("CREATE INDEX ON %s (%s)", r.Table, r.Column))
			where = fmt.Sprintf("index of %d of the %d partitions of %s", len(r.Missing), r.Leaves, r.Table)
		}
		return Finding{
			Severity: problem.Warning, Object: r.Table + "." + r.Column,
			Message: fmt.Sprintf("no %s begins with %s, so every batch reads the whole table", where, r.Column),
			Fix:     strings.Join(statements, "; "),
		}
	})
	if err != nil {
		return nil, fmt.Errorf("look for indexes: %w", err)
	}
	return found, nil
}
