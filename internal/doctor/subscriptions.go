package doctor

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// A worker that applies changes fires no statement triggers, and the tracking triggers are such.
const subscriptionsSQL = `
WITH RECURSIVE part AS (
    SELECT class.oid
    FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])) AS parent (schema_name, table_name)
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = parent.schema_name
    JOIN pg_catalog.pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = parent.table_name
    UNION
    SELECT below.inhrelid
    FROM part
    JOIN pg_catalog.pg_inherits AS below ON below.inhparent = part.oid
    JOIN pg_catalog.pg_class AS class ON class.oid = below.inhrelid AND class.relispartition
)
SELECT DISTINCT subscription.subname::pg_catalog.text, relation.srrelid::pg_catalog.regclass::pg_catalog.text
FROM part
JOIN pg_catalog.pg_subscription_rel AS relation ON relation.srrelid = part.oid
JOIN pg_catalog.pg_subscription AS subscription ON subscription.oid = relation.srsubid
ORDER BY 1, 2`

// subscriptions looks for parents whose deletions come by logical replication and go unrecorded.
func (t Target) subscriptions(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	var schemas, tables []string
	for _, parent := range t.Parents {
		schemas, tables = append(schemas, parent.Schema), append(tables, parent.Table)
	}
	type row struct{ Subscription, Table string }
	return query(ctx, tx, subscriptionsSQL, []any{schemas, tables}, func(r row) Finding {
		return Finding{
			Severity: problem.Error, Object: r.Table,
			Message: fmt.Sprintf("deletions that subscription %s applies are not recorded: logical replication fires no statement triggers", r.Subscription),
			Fix:     "run Sexton on the publisher and replicate the children, too; what is left here already: sexton audit",
		}
	})
}
