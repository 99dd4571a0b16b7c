package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/each"
	"sexton/internal/problem"
)

// The variants.
const (
	oneStatement  = "one_statement"
	nativeCascade = "native"
	inList        = "in_list"
	sexton        = "sexton"
	undisturbed   = "undisturbed"
)

// analyzeTombstones lets the planner choose the best join for the yardstick.
func analyzeTombstones(ctx context.Context, p *dataCopy) error {
	_, err := p.conn.Exec(ctx, "ANALYZE "+tombstones)
	return problem.Doing(err, "analyze tombstones")
}

// drainByOneStatement is the yardstick: one statement per child table, joined to the tombstones, in one transaction.
func (s dataSet) drainByOneStatement(ctx context.Context, p *dataCopy) error {
	change := "DELETE FROM %s AS child USING"
	if s.Nullify {
		change = "UPDATE %s AS child SET parent_id = NULL FROM"
	}
	statements := each.Of(s.Tables, func(table string) counted {
		return counted{
			table: table, sql: fmt.Sprintf(change, table) + " " + tombstones + " AS tombstone WHERE child.parent_id = tombstone.primary_key_value",
		}
	})
	return p.together(ctx, statements)
}

// addForeignKeys makes Postgres do the work, without the tracking trigger.
func (s dataSet) addForeignKeys(ctx context.Context, p *dataCopy) error {
	action := "CASCADE"
	if s.Nullify {
		action = "SET NULL"
	}
	statements := []string{"ALTER TABLE parents DISABLE TRIGGER sexton_track"}
	for _, table := range s.Tables {
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
func (s dataSet) drainByInLists(ctx context.Context, p *dataCopy) error {
	if err := p.avoidSequentialScans(ctx); err != nil {
		return err
	}
	last := listed{ConsumeAfter: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}}
	for {
		batch, err := p.nextList(ctx, last)
		if err != nil || len(batch) == 0 {
			return err
		}
		keys := each.Of(batch, func(tombstone listed) string { return strconv.FormatInt(tombstone.Key, 10) })
		for _, table := range s.Tables {
			for _, lock := range []string{" FOR UPDATE SKIP LOCKED", ""} {
				if err := p.exhaust(ctx, table, inListStatement(s, table, keys, lock)); err != nil {
					return err
				}
			}
		}
		last = batch[len(batch)-1]
		const mark = `UPDATE ` + tombstones + ` SET status = 2
			WHERE fully_qualified_table_name = 'public.parents' AND status = 1 AND (consume_after, id) <= ($1, $2)`
		if _, err := p.conn.Exec(ctx, mark, last.ConsumeAfter, last.ID); err != nil {
			return fmt.Errorf("mark tombstones: %w", err)
		}
	}
}

// listed is one tombstone.
type listed struct {
	ConsumeAfter pgtype.Timestamptz
	ID, Key      int64
}

func (p *dataCopy) nextList(ctx context.Context, last listed) ([]listed, error) {
	const sql = `SELECT consume_after, id, primary_key_value FROM ` + tombstones + `
		WHERE fully_qualified_table_name = 'public.parents' AND status = 1 AND (consume_after, id) > ($1, $2)
		ORDER BY consume_after, id LIMIT $3`
	rows, _ := p.conn.Query(ctx, sql, last.ConsumeAfter, last.ID, listSize)
	batch, err := pgx.CollectRows(rows, pgx.RowToStructByPos[listed])
	return batch, problem.Doing(err, "load tombstones")
}

func inListStatement(s dataSet, table string, keys []string, lock string) string {
	change, limit := "DELETE FROM "+table, listDeletes
	if s.Nullify {
		change, limit = "UPDATE "+table+" SET parent_id = NULL", listUpdates
	}
	return fmt.Sprintf("%s WHERE id IN (SELECT id FROM %s WHERE parent_id IN (%s) LIMIT %d%s)", change, table, strings.Join(keys, ", "), limit, lock)
}
