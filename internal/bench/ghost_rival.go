package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// original has the statements of the original.
const original = "original"

// queued are the users that the work is about, in the order of the queue.
func (p *plot) queued(ctx context.Context) ([]int64, error) {
	rows, err := p.conn.Query(ctx, "SELECT user_id FROM "+userQueue+" ORDER BY consume_after, id")
	if err != nil {
		return nil, fmt.Errorf("load users: %w", err)
	}
	users, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("load users: %w", err)
	}
	return users, nil
}

// moveByOneStatement is the yardstick: one UPDATE per table for all users at once, in one transaction, behind a DELETE of the
// doubles where there are any. The users stay.
func (s userSet) moveByOneStatement(ctx context.Context, p *plot) (times []time.Duration, err error) {
	users, err := p.queued(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := p.conn.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	for _, t := range s.tables {
		if t.double != "" {
			_, took, err := timed(ctx, p.conn, t.clear(), users)
			if err != nil {
				return nil, fmt.Errorf("clear %s: %w", t.table, err)
			}
			times = append(times, took)
		}
		_, took, err := timed(ctx, p.conn, fmt.Sprintf("UPDATE %s SET %s = %d WHERE %s = ANY ($1)", t.table, t.column, ghostID, t.column), users)
		if err != nil {
			return nil, fmt.Errorf("move %s: %w", t.table, err)
		}
		times = append(times, took)
	}
	if err := tx.Commit(ctx); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return times, nil
}

// originalMoves is the original's batch.
const originalMoves = 50

// moveByOriginal has the original's statements, without its limits per run: per user and table, until one of them
// changes nothing, and each in a transaction of its own. The users stay. Sequential scans are off, without which the
// planner reads all that has been moved again for every fifty rows.
func (s userSet) moveByOriginal(ctx context.Context, p *plot) (times []time.Duration, err error) {
	users, err := p.queued(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := p.conn.Exec(ctx, "SET enable_seqscan = off"); err != nil {
		return nil, fmt.Errorf("switch sequential scans off: %w", err)
	}
	defer func() {
		if _, resetErr := p.conn.Exec(ctx, "RESET enable_seqscan"); resetErr != nil {
			err = errors.Join(err, fmt.Errorf("switch sequential scans on: %w", resetErr))
		}
	}()
	for _, user := range users {
		for _, t := range s.tables {
			if t.double != "" {
				_, took, err := timed(ctx, p.conn, t.clear(), []int64{user})
				if err != nil {
					return nil, fmt.Errorf("clear %s: %w", t.table, err)
				}
				times = append(times, took)
			}
			statement := originalStatement(t)
			for {
				tag, took, err := timed(ctx, p.conn, statement, user)
				if err != nil {
					return nil, fmt.Errorf("move %s: %w", t.table, err)
				}
				times = append(times, took)
				if tag.RowsAffected() == 0 {
					break
				}
			}
		}
	}
	return times, nil
}

func originalStatement(t moved) string {
	return fmt.Sprintf("UPDATE %[1]s SET %[2]s = %[3]d WHERE id IN (SELECT id FROM %[1]s WHERE %[2]s = $1 LIMIT %[4]d)",
		t.table, t.column, ghostID, originalMoves)
}
