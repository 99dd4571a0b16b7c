package loosefk

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
)

// Revived tombstones are kept for operators who ask why children stay: so many days, and so many of them.
const (
	revivedDays = 7
	mostRevived = 10_000
)

// RevivedTombstone is a deleted row whose key lives, so that its children stay.
type RevivedTombstone struct {
	ID        int64     `json:"id"`
	Table     string    `json:"table"`
	Key       string    `json:"key"`
	DeletedAt time.Time `json:"deleted_at"`
	SettledAt time.Time `json:"settled_at"`
}

// revivedSQL lists revived tombstones, the newest first, of table $1 or of all, and how many there are.
const revivedSQL = `
SELECT revived.id, revived.fully_qualified_table_name, coalesce(revived.primary_key_value::pg_catalog.text, revived.primary_key_text),
       revived.created_at, revived.settled_at, pg_catalog.count(*) OVER ()
FROM "public".loose_foreign_keys_deleted_records AS revived
WHERE revived.status OPERATOR(pg_catalog.=) 3
  AND ($1::pg_catalog.text OPERATOR(pg_catalog.=) '' OR revived.fully_qualified_table_name OPERATOR(pg_catalog.=) $1)
ORDER BY revived.settled_at DESC, revived.id DESC
LIMIT $2`

// Revived returns the newest revived tombstones, of one parent or of all, and how many the limit left out.
func (t Tombstones) Revived(ctx context.Context, parent string, limit int) (list []RevivedTombstone, more int64, err error) {
	err = t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, t.Names.Render(revivedSQL), parent, limit)
		if err != nil {
			return err
		}
		var one RevivedTombstone
		_, err = pgx.ForEachRow(rows, []any{&one.ID, &one.Table, &one.Key, &one.DeletedAt, &one.SettledAt, &more}, func() error {
			list = append(list, one)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list revived tombstones: %w", err)
	}
	return list, more - int64(len(list)), nil
}

// clearSQL makes revived tombstones due. That they keep the time when they were settled says that their parents do not matter.
const clearSQL = `
UPDATE "public".loose_foreign_keys_deleted_records AS tombstone
SET status = 1, consume_after = pg_catalog.clock_timestamp(), cleanup_attempts = 0
WHERE tombstone.status OPERATOR(pg_catalog.=) 3 AND tombstone.id OPERATOR(pg_catalog.=) ANY ($1::bigint[])
RETURNING tombstone.id`

// Clear has children cleaned up although their parents live, and returns the ids that no revived tombstone has.
func (t Tombstones) Clear(ctx context.Context, ids []int64) (unknown []int64, err error) {
	unknown = slices.Compact(slices.Sorted(slices.Values(ids)))
	err = t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, t.Names.Render(clearSQL), unknown)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(found) == 0 {
			return err
		}
		unknown = slices.DeleteFunc(unknown, func(id int64) bool { return slices.Contains(found, id) })
		return t.Wake(ctx, tx)
	})
	if err != nil {
		return nil, fmt.Errorf("clear tombstones: %w", err)
	}
	return unknown, nil
}

// expiredSQL and surplusSQL remove revived tombstones that are too old ($1 days) and too many (beyond $1), $2 at most.
const (
	expiredSQL = `
DELETE FROM "public".loose_foreign_keys_deleted_records AS tombstone
WHERE tombstone.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT revived.ctid
    FROM "public".loose_foreign_keys_deleted_records AS revived
    WHERE revived.status OPERATOR(pg_catalog.=) 3 AND revived.settled_at OPERATOR(pg_catalog.<) (
        pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(days => $1::int))
    ORDER BY revived.settled_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))`
	surplusSQL = `
DELETE FROM "public".loose_foreign_keys_deleted_records AS tombstone
WHERE tombstone.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT surplus.ctid
    FROM "public".loose_foreign_keys_deleted_records AS surplus
    WHERE surplus.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
        SELECT revived.ctid
        FROM "public".loose_foreign_keys_deleted_records AS revived
        WHERE revived.status OPERATOR(pg_catalog.=) 3
        ORDER BY revived.settled_at DESC, revived.id DESC
        OFFSET $1
        LIMIT $2
    ))
    FOR UPDATE SKIP LOCKED
))`
)

// expired is the statement that removes old ones.
func (r *run) expired() batch.Statement {
	return batch.Statement{SQL: r.engine.Session.Names.Render(expiredSQL), Args: []any{revivedDays, pageSize}}
}

// prune removes what a run has revived beyond what is kept.
func (r *run) prune(ctx context.Context) error {
	if r.stats.Revived == 0 {
		return nil
	}
	surplus := batch.Statement{SQL: r.engine.Session.Names.Render(surplusSQL), Args: []any{mostRevived, pageSize}}
	for removed := int64(pageSize); removed == pageSize && r.stop.Err() == nil; {
		affected, err := r.engine.Session.Run(ctx, surplus)
		if err != nil {
			return fmt.Errorf("remove revived tombstones: %w", err)
		}
		removed = affected[0]
	}
	return nil
}
