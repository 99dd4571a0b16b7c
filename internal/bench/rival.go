package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// The contenders.
const (
	oneStatement  = "one_statement"
	nativeCascade = "native"
	inList        = "in_list"
	sexton        = "sexton"
	undisturbed   = "undisturbed"
)

// analyzeTombstones lets the planner choose the best join for the yardstick.
func analyzeTombstones(ctx context.Context, p *plot) error {
	if _, err := p.conn.Exec(ctx, "ANALYZE "+tombstones); err != nil {
		return fmt.Errorf("analyze tombstones: %w", err)
	}
	return nil
}

// drainByOneStatement is the yardstick: one statement per child table, joined to the tombstones, in one transaction.
func (s dataSet) drainByOneStatement(ctx context.Context, p *plot) (times []time.Duration, err error) {
	tx, err := p.conn.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	change := "DELETE FROM %s AS child USING"
	if s.nullify {
		change = "UPDATE %s AS child SET parent_id = NULL FROM"
	}
	for _, table := range s.tables {
		_, took, err := timed(ctx, p.conn, fmt.Sprintf(change, table)+" "+tombstones+" AS tombstone WHERE child.parent_id = tombstone.primary_key_value")
		if err != nil {
			return nil, fmt.Errorf("clean %s: %w", table, err)
		}
		times = append(times, took)
	}
	if err := tx.Commit(ctx); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return times, nil
}

// addForeignKeys makes Postgres do the work, without the tracking trigger.
func (s dataSet) addForeignKeys(ctx context.Context, p *plot) error {
	action := "CASCADE"
	if s.nullify {
		action = "SET NULL"
	}
	statements := []string{"ALTER TABLE parents DISABLE TRIGGER sexton_track"}
	for _, table := range s.tables {
		statements = append(statements, fmt.Sprintf("ALTER TABLE %s ADD FOREIGN KEY (parent_id) REFERENCES parents ON DELETE %s", table, action))
	}
	for _, statement := range statements {
		if _, err := p.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("add foreign keys: %w", err)
		}
	}
	return nil
}

const (
	// listSize is how many parents one IN list of the original's statements names.
	listSize = 1000
	// listDeletes and listUpdates are the rows of one of them.
	listDeletes = 1000
	listUpdates = 500
)

// drainByInLists has the original's statements, without its limits per run: for 1,000 tombstones at a time and
// each child table a first pass that skips locked rows and a second one that waits for them, both until a
// statement finds nothing. Sequential scans are off, without which the planner chooses them for such lists now
// and then; on most data that is to the advantage of these statements. The place in the queue is remembered,
// though the original looks for it again.
func (s dataSet) drainByInLists(ctx context.Context, p *plot) (times []time.Duration, err error) {
	if _, err := p.conn.Exec(ctx, "SET enable_seqscan = off"); err != nil {
		return nil, fmt.Errorf("switch sequential scans off: %w", err)
	}
	defer func() {
		if _, resetErr := p.conn.Exec(ctx, "RESET enable_seqscan"); resetErr != nil {
			err = errors.Join(err, fmt.Errorf("switch sequential scans on: %w", resetErr))
		}
	}()
	var last listed
	for {
		batch, err := p.nextList(ctx, last)
		if err != nil || len(batch) == 0 {
			return times, err
		}
		keys := make([]string, len(batch))
		for i, tombstone := range batch {
			keys[i] = strconv.FormatInt(tombstone.key, 10)
		}
		for _, table := range s.tables {
			for _, lock := range []string{" FOR UPDATE SKIP LOCKED", ""} {
				statement := inListStatement(s, table, keys, lock)
				for {
					tag, took, err := timed(ctx, p.conn, statement)
					if err != nil {
						return nil, fmt.Errorf("clean %s: %w", table, err)
					}
					times = append(times, took)
					if tag.RowsAffected() == 0 {
						break
					}
				}
			}
		}
		last = batch[len(batch)-1]
		const mark = `UPDATE ` + tombstones + ` SET status = 2
			WHERE fully_qualified_table_name = 'public.parents' AND status = 1 AND (consume_after, id) <= ($1, $2)`
		if _, err := p.conn.Exec(ctx, mark, last.consumeAfter, last.id); err != nil {
			return nil, fmt.Errorf("mark tombstones: %w", err)
		}
	}
}

// listed is one tombstone.
type listed struct {
	consumeAfter pgtype.Timestamptz
	id, key      int64
}

func (p *plot) nextList(ctx context.Context, last listed) ([]listed, error) {
	const sql = `SELECT consume_after, id, primary_key_value FROM ` + tombstones + `
		WHERE fully_qualified_table_name = 'public.parents' AND status = 1 AND (consume_after, id) > ($1, $2)
		ORDER BY consume_after, id LIMIT $3`
	if !last.consumeAfter.Valid {
		last.consumeAfter = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	rows, err := p.conn.Query(ctx, sql, last.consumeAfter, last.id, listSize)
	if err != nil {
		return nil, fmt.Errorf("load tombstones: %w", err)
	}
	batch, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t listed, err error) {
		return t, row.Scan(&t.consumeAfter, &t.id, &t.key)
	})
	if err != nil {
		return nil, fmt.Errorf("load tombstones: %w", err)
	}
	return batch, nil
}

func inListStatement(s dataSet, table string, keys []string, lock string) string {
	change, limit := "DELETE FROM "+table, listDeletes
	if s.nullify {
		change, limit = "UPDATE "+table+" SET parent_id = NULL", listUpdates
	}
	return fmt.Sprintf("%s WHERE id IN (SELECT id FROM %s WHERE parent_id IN (%s) LIMIT %d%s)", change, table, strings.Join(keys, ", "), limit, lock)
}
