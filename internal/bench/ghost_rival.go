package bench

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// original has the statements of the original.
const original = "original"

// queued are the users that the work is about, in the order of the queue.
func (p *plot) queued(ctx context.Context) ([]int64, error) {
	rows, _ := p.conn.Query(ctx, "SELECT user_id FROM "+userQueue+" ORDER BY consume_after, id")
	users, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("load users: %w", err)
	}
	return users, nil
}

// moveByOneStatement is the yardstick: one UPDATE per table for all users at once, in one transaction, behind a DELETE of the
// doubles where there are any. The users stay.
func (s userSet) moveByOneStatement(ctx context.Context, p *plot) error {
	users, err := p.queued(ctx)
	if err != nil {
		return err
	}
	var statements []counted
	for _, t := range s.tables {
		if t.double != "" {
			statements = append(statements, counted{t.table, t.clear(), []any{users}})
		}
		sql := fmt.Sprintf("UPDATE %s SET %s = %d WHERE %[2]s = ANY ($1)", t.table, t.column, ghostID)
		statements = append(statements, counted{t.table, sql, []any{users}})
	}
	return p.together(ctx, statements)
}

// originalMoves is the original's batch.
const originalMoves = 50

// moveByOriginal has the original's statements, without its limits per run: per user and table, until one of them
// changes nothing, and each in a transaction of its own. The users stay. Sequential scans are off, without which the
// planner reads all that has been moved again for every fifty rows.
func (s userSet) moveByOriginal(ctx context.Context, p *plot) error {
	users, err := p.queued(ctx)
	if err != nil {
		return err
	}
	if err := p.avoidSequentialScans(ctx); err != nil {
		return err
	}
	for _, user := range users {
		for _, t := range s.tables {
			if t.double != "" {
				if _, err := p.send(ctx, t.table, t.clear(), []int64{user}); err != nil {
					return err
				}
			}
			if err := p.exhaust(ctx, t.table, originalStatement(t), user); err != nil {
				return err
			}
		}
	}
	return nil
}

func originalStatement(t moved) string {
	return fmt.Sprintf("UPDATE %[1]s SET %[2]s = %[3]d WHERE id IN (SELECT id FROM %[1]s WHERE %[2]s = $1 LIMIT %[4]d)",
		t.table, t.column, ghostID, originalMoves)
}
