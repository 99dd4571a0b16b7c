package loosefk

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// relocateBatch is how many tombstones one transaction moves or drops.
const relocateBatch = 1_000

// Relocated is the outcome for the waiting tombstones of a parent.
type Relocated struct {
	Changed int64 `json:"changed"`
	// Busy are tombstones that a worker had in hand. They were left alone.
	Busy int64 `json:"busy"`
}

// Table returns the name that tombstones of a table carry, in its present spelling, or "" where there is no such table.
func (t Tombstones) Table(ctx context.Context, recorded string) (name string, err error) {
	const sql = "SELECT coalesce((SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class AS c " +
		"JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace " +
		"WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1) AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p}')), '')"
	err = t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql, recorded).Scan(&name) })
	if err != nil {
		return "", fmt.Errorf("look for table %s: %w", recorded, err)
	}
	return name, nil
}

// Count counts the waiting tombstones of a parent, up to most.
func (t Tombstones) Count(ctx context.Context, parent string, most int) (n int, err error) {
	const sql = `SELECT pg_catalog.count(*) FROM (SELECT FROM "public".loose_foreign_keys_deleted_records AS waiting
		WHERE waiting.fully_qualified_table_name OPERATOR(pg_catalog.=) $1 AND waiting.status OPERATOR(pg_catalog.=) 1 LIMIT $2) AS capped`
	err = t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) error { return tx.QueryRow(ctx, t.Names.Render(sql), parent, most).Scan(&n) })
	if err != nil {
		return 0, fmt.Errorf("count tombstones of %s: %w", parent, err)
	}
	return n, nil
}

const chosenSQL = `WHERE chosen.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
	SELECT waiting.ctid FROM "public".loose_foreign_keys_deleted_records AS waiting
	WHERE waiting.fully_qualified_table_name OPERATOR(pg_catalog.=) $1 AND waiting.status OPERATOR(pg_catalog.=) 1
		AND waiting.created_at OPERATOR(pg_catalog.<=) $2
	ORDER BY waiting.consume_after, waiting.id LIMIT $3 FOR UPDATE SKIP LOCKED))`

// Move gives the waiting tombstones of a parent to another one, due now. The counts are valid beside an error, too.
func (t Tombstones) Move(ctx context.Context, from, to string) (Relocated, error) {
	return t.relocate(ctx, from, `UPDATE "public".loose_foreign_keys_deleted_records AS chosen
		SET fully_qualified_table_name = $4, parent_oid = pg_catalog.to_regclass($4)::pg_catalog.oid, tracked_as = NULL,
			consume_after = pg_catalog.clock_timestamp(), cleanup_attempts = 0, settled_at = NULL `+chosenSQL, to)
}

// Drop forgets the waiting tombstones of a parent: the children of its deleted rows stay.
func (t Tombstones) Drop(ctx context.Context, parent string) (Relocated, error) {
	return t.relocate(ctx, parent, `DELETE FROM "public".loose_foreign_keys_deleted_records AS chosen `+chosenSQL)
}

// relocate changes batch after batch what waited when it began.
func (t Tombstones) relocate(ctx context.Context, parent, sql string, more ...any) (Relocated, error) {
	var result Relocated
	var start time.Time
	err := t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT pg_catalog.clock_timestamp()").Scan(&start)
	})
	for err == nil {
		var changed int64
		err = t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, t.Names.Render(sql), append([]any{parent, start, relocateBatch}, more...)...)
			changed = tag.RowsAffected()
			if err != nil || changed == 0 {
				return err
			}
			return t.Wake(ctx, tx)
		})
		if err == nil {
			result.Changed += changed
		}
		if changed == 0 {
			break
		}
	}
	if err == nil {
		const left = `SELECT pg_catalog.count(*) FROM "public".loose_foreign_keys_deleted_records AS waiting
			WHERE waiting.fully_qualified_table_name OPERATOR(pg_catalog.=) $1 AND waiting.status OPERATOR(pg_catalog.=) 1
				AND waiting.created_at OPERATOR(pg_catalog.<=) $2`
		err = t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, t.Names.Render(left), parent, start).Scan(&result.Busy)
		})
	}
	if err != nil {
		return result, fmt.Errorf("%s tombstones of %s: %w", strings.ToLower(sql[:6]), parent, err)
	}
	return result, nil
}
