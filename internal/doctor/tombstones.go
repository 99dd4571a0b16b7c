package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// overdue is how long a tombstone may be due: even the largest backlog is worked on in turns.
const overdue = time.Hour

// tombstones looks for tombstones that no worker will ever work off and for tombstones that are long overdue.
func (t Target) tombstones(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	waiting, err := t.Database.Names.Queries(tx).TombstoneParents(ctx)
	if err != nil {
		return nil, fmt.Errorf("read parents of tombstones: %w", err)
	}
	defined := map[string]bool{}
	for _, parent := range t.Parents {
		defined[parent.Recorded] = true
	}
	table := quote(t.Database.Names.Tracked, "loose_foreign_keys_deleted_records")
	var found []Finding
	var known []string
	for _, name := range waiting {
		if defined[name] {
			known = append(known, name)
			continue
		}
		found = append(found, one(problem.Warning, name,
			fmt.Sprintf("tombstones of %s wait, and no definition names it as parent: nothing will ever work them off", name),
			fmt.Sprintf("restore the definition, or give them up: DELETE FROM %s WHERE fully_qualified_table_name = %s", table, literal(name)))...)
	}
	type row struct {
		Parent string
		Since  time.Time
	}
	sql, args := t.Database.Names.Render(sqlText("overdue")), []any{known, overdue.Seconds()}
	late, err := query(ctx, tx, "look for overdue tombstones", sql, args, func(r row) []Finding {
		return one(problem.Warning, r.Parent, fmt.Sprintf("a tombstone of %s has been due since %s", r.Parent, r.Since.UTC().Format(time.RFC3339)),
			"see what is waited for: sexton status")
	})
	return append(found, late...), err
}

// subscriptions looks for parents whose deletions come by logical replication and go unrecorded.
func (t Target) subscriptions(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	schemas, tables := t.tables()
	type row struct{ Subscription, Table string }
	return query(ctx, tx, "look for subscriptions", sqlText("subscriptions"), []any{schemas, tables}, func(r row) []Finding {
		return one(problem.Error, r.Table,
			fmt.Sprintf("deletions that subscription %s applies are not recorded: logical replication fires no statement triggers", r.Subscription),
			"run Sexton on the publisher and replicate the children, too; what is left here already: sexton audit")
	})
}

// literal quotes a text for a statement that a person is to run.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
