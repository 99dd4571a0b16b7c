package doctor

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

//go:embed queries/subscriptions.sql
var subscriptionsSQL string

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
