package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// One row per reference, with those of the table's leaves that no usable index of helps to find rows by its columns:
// one that is valid, begins with all of them in any order, or is unique on some, and holds all rows in which they
// are not NULL.
const indexesSQL = `
SELECT format('%I.%I', namespace.nspname, root.relname),
       (SELECT string_agg(format('%I', name), ', ' ORDER BY place) FROM unnest(wanted.names) WITH ORDINALITY AS key (name, place)),
       root.relkind = 'p', count(*)::int,
       coalesce(array_agg(format('%I.%I', home.nspname, leaf.relname) ORDER BY leaf.oid) FILTER (WHERE NOT served.yes), '{}')
FROM (
    SELECT DISTINCT schema, relation, names FROM jsonb_to_recordset($1) AS given (schema text, relation text, names text[])
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
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM pg_index AS index
        JOIN pg_class AS class ON class.oid = index.indexrelid
        JOIN pg_am AS method ON method.oid = class.relam AND method.amname IN ('btree', 'hash')
        CROSS JOIN LATERAL (
            SELECT ARRAY(
                SELECT coalesce(attribute.attname, '')::text
                FROM unnest(index.indkey::smallint[]) WITH ORDINALITY AS key (number, position)
                LEFT JOIN pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = key.number
                WHERE key.position <= index.indnkeyatts
                ORDER BY key.position
            ) AS columns, regexp_replace(pg_get_expr(index.indpred, index.indrelid), '^\((\(.*\))\)$', '\1') AS predicate
        ) AS found
        WHERE index.indrelid = leaf.oid
          AND index.indisvalid
          AND (found.columns[:cardinality(wanted.names)] @> wanted.names OR index.indisunique AND found.columns <@ wanted.names)
          AND (found.predicate IS NULL
              OR string_to_array(found.predicate, ' AND ') <@ ARRAY(SELECT format('(%I IS NOT NULL)', name) FROM unnest(wanted.names) AS name))
    ) AS yes
) AS served
WHERE NOT EXISTS (
    SELECT FROM unnest(wanted.names) AS name
    WHERE NOT EXISTS (SELECT FROM pg_attribute AS attribute WHERE attribute.attrelid = leaf.oid AND attribute.attname = name AND NOT attribute.attisdropped)
)
GROUP BY namespace.nspname, root.relname, root.relkind, wanted.names
HAVING bool_or(NOT served.yes)
ORDER BY 1, 2`

// indexes looks for referring columns without an index.
func (t Target) indexes(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	references := t.References
	if references == nil {
		references = []Reference{} // JSON's null is no list.
	}
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
