package loosefk

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/pgcatalog"
	"sexton/internal/pgschema"
)

const (
	// listWindow is how many tombstones of a parent are looked at from the head of its queue, and as many of those
	// that are put off. What has failed stands in one of the two places: a run begins with the oldest, and failing
	// moves a tombstone behind the present moment only.
	listWindow = 10_000
	// pageSize is how many tombstones one statement of a retry reads, retrySize how many one transaction changes.
	pageSize  = 10_000
	retrySize = 1_000
)

// Tombstones shows the waiting tombstones of one database and has failed ones tried again, beside workers.
type Tombstones struct {
	DB     pgcatalog.Beginner
	Names  pgschema.Names
	Bounds Bounds
	// Wake is called in each transaction that made tombstones due.
	Wake Waker
}

// PendingTombstone is one deleted parent whose children have not been cleaned up yet.
type PendingTombstone struct {
	ID int64 `json:"id"`
	// Table is the parent as the tombstone names it, schema-qualified and quoted where needed.
	Table string `json:"table"`
	// Key is the deleted row's key in text form.
	Key string `json:"key"`
	// Attempts counts the runs that could not finish it since it was last put back.
	Attempts int `json:"attempts"`
	// Failed is true for tombstones with attempts and for tombstones that are put off.
	Failed bool `json:"failed"`
	// LastError is table, SQLSTATE and message of the last attempt; nil before the first one.
	LastError *string `json:"last_error"`
	// ConsumeAfter is when it falls, or fell, due. It may be infinite, which is how an operator reorders the queue.
	ConsumeAfter pgtype.Timestamptz `json:"consume_after"`
	// Deferred tells that ConsumeAfter lies ahead.
	Deferred   bool    `json:"deferred"`
	AgeSeconds float64 `json:"age_seconds"`
}

// ListOptions choose tombstones. The zero value is not useful: Limit has to be positive.
type ListOptions struct {
	// Parent is the recorded name of one parent; empty means all.
	Parent string
	// FailedOnly leaves out what has not failed.
	FailedOnly bool
	Limit      int
	// Window is how many tombstones of a parent are looked at in each of the two places where failed ones stand; 0 means 10,000.
	Window int
}

// TombstoneList is the beginning of a queue.
type TombstoneList struct {
	Tombstones []PendingTombstone
	// More counts tombstones that the limit left out. Capped tells that counting stopped, so there are at least as many.
	More   int64
	Capped bool
}

// listSQL lists the tombstones of the parents $1, failed ones first, in the order of the index. Per parent
// it reads two stretches of the index of at most $2 rows. $3 leaves out what has not failed, $4 is the limit.
const listSQL = `
WITH pending AS (
    SELECT tombstone.*
    FROM pg_catalog.unnest($1::pg_catalog.text[]) AS parent (name)
    CROSS JOIN LATERAL (
        (
            SELECT due.*, false AS deferred
            FROM "public".loose_foreign_keys_deleted_records AS due
            WHERE due.fully_qualified_table_name = parent.name AND due.status = 1 AND due.consume_after <= pg_catalog.now()
            ORDER BY due.consume_after, due.id
            LIMIT $2
        )
        UNION ALL
        (
            SELECT later.*, true AS deferred
            FROM "public".loose_foreign_keys_deleted_records AS later
            WHERE later.fully_qualified_table_name = parent.name AND later.status = 1 AND later.consume_after > pg_catalog.now()
            ORDER BY later.consume_after, later.id
            LIMIT $2
        )
    ) AS tombstone
)
SELECT
    pending.id,
    pending.fully_qualified_table_name,
    coalesce(pending.primary_key_value::pg_catalog.text, pending.primary_key_text),
    pending.cleanup_attempts,
    pending.cleanup_attempts > 0 OR pending.deferred,
    pending.last_error,
    pending.consume_after,
    pending.deferred,
    extract(epoch FROM pg_catalog.now() - pending.created_at)::pg_catalog.float8,
    pg_catalog.count(*) OVER ()
FROM pending
WHERE NOT $3 OR pending.cleanup_attempts > 0 OR pending.deferred
ORDER BY 5 DESC, pending.fully_qualified_table_name, pending.consume_after, pending.id
LIMIT $4`

// List returns the first tombstones, failed ones before all others, and else by parent and in the order
// in which they are worked off. However long the queue is, it reads a bounded part of it.
func (t Tombstones) List(ctx context.Context, options ListOptions) (TombstoneList, error) {
	list := TombstoneList{Tombstones: []PendingTombstone{}}
	parents, err := t.parents(ctx, options.Parent)
	if err != nil {
		return list, err
	}
	var total int64
	window := int64(cmp.Or(options.Window, listWindow))
	err = t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, t.Names.Render(listSQL), parents, window+1, options.FailedOnly, options.Limit)
		if err != nil {
			return err
		}
		var one PendingTombstone
		_, err = pgx.ForEachRow(rows, []any{
			&one.ID, &one.Table, &one.Key, &one.Attempts, &one.Failed, &one.LastError, &one.ConsumeAfter, &one.Deferred, &one.AgeSeconds, &total,
		}, func() error {
			list.Tombstones = append(list.Tombstones, one)
			return nil
		})
		return err
	})
	if err != nil {
		return list, fmt.Errorf("list tombstones: %w", err)
	}
	list.Capped = total > window
	list.More = max(0, min(total, window)-int64(len(list.Tombstones)))
	return list, nil
}

// RetryOptions choose the tombstones to try again: by their ids, or of one parent, or all.
type RetryOptions struct {
	Parent string
	// IDs restrict the retry to these tombstones; empty means no restriction.
	IDs []int64
}

// Retried is the outcome for the tombstones that a retry was meant for.
type Retried struct {
	// Retried were made due. Due were so already and did not fail; they are counted where they were asked for by id.
	Retried int64 `json:"retried"`
	Due     int64 `json:"due"`
	// Busy are tombstones that a worker had in hand at that moment. They were left alone.
	Busy int64 `json:"busy"`
	// Unknown are the ids that no waiting tombstone has.
	Unknown []int64 `json:"unknown"`
}

// pageSQL reads at most $4 tombstones of parent $1 behind a position and returns those with an id in $5, or, where
// $5 is NULL, the failed ones. The last one of a full page comes as well: there may be more behind it.
const pageSQL = `
SELECT page.consume_after, page.id, page.failed, page.wanted, page.number = $4
FROM (
    SELECT tombstone.consume_after, tombstone.id,
           tombstone.cleanup_attempts > 0 OR tombstone.consume_after > pg_catalog.now() AS failed,
           $5::bigint[] IS NULL OR tombstone.id = ANY ($5) AS wanted,
           pg_catalog.row_number() OVER (ORDER BY tombstone.consume_after, tombstone.id) AS number
    FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name = $1
      AND tombstone.status = 1
      AND (tombstone.consume_after, tombstone.id) > ($2, $3)
    ORDER BY tombstone.consume_after, tombstone.id
    LIMIT $4
) AS page
WHERE page.wanted AND (page.failed OR $5 IS NOT NULL) OR page.number = $4
ORDER BY page.number`

// retrySQL makes tombstones of parent $1 due and counts those; the rest of the ones that are there are locked, or
// have just been changed by somebody else. The reason of the last failure stays until the next attempt, for
// a session that looks at the tombstone in between.
const retrySQL = `
WITH wanted AS (
    SELECT tombstone.consume_after, tombstone.id
    FROM unnest($2::bigint[], $3::pg_catalog.timestamptz[]) AS place (id, consume_after)
    JOIN "public".loose_foreign_keys_deleted_records AS tombstone
        ON tombstone.fully_qualified_table_name = $1
        AND tombstone.consume_after = place.consume_after
        AND tombstone.id = place.id
        AND tombstone.status = 1
), free AS (
    SELECT tombstone.consume_after, tombstone.id
    FROM wanted
    JOIN "public".loose_foreign_keys_deleted_records AS tombstone
        ON tombstone.fully_qualified_table_name = $1
        AND tombstone.consume_after = wanted.consume_after
        AND tombstone.id = wanted.id
        AND tombstone.status = 1
    FOR UPDATE OF tombstone SKIP LOCKED
), retried AS (
    UPDATE "public".loose_foreign_keys_deleted_records AS tombstone
    SET consume_after = pg_catalog.clock_timestamp(),
        cleanup_attempts = 0
    FROM free
    WHERE tombstone.fully_qualified_table_name = $1
      AND tombstone.consume_after = free.consume_after
      AND tombstone.id = free.id
    RETURNING 1
)
SELECT (SELECT pg_catalog.count(*) FROM retried), (SELECT pg_catalog.count(*) FROM wanted)`

// Retry makes failed tombstones due now, as if they had never failed. Done twice it changes nothing more. It
// reads the queue page by page, and never waits for a row that somebody has locked. The counts are valid beside
// an error, too.
func (t Tombstones) Retry(ctx context.Context, options RetryOptions) (Retried, error) {
	result := Retried{Unknown: slices.Compact(slices.Sorted(slices.Values(options.IDs)))}
	parents, err := t.parents(ctx, options.Parent)
	if err != nil {
		return result, err
	}
	if result.Unknown == nil {
		result.Unknown = []int64{}
	}
	for _, parent := range parents {
		if err := t.retryParent(ctx, parent, options.IDs, &result); err != nil {
			return result, fmt.Errorf("retry tombstones of %s: %w", parent, err)
		}
		if len(options.IDs) > 0 && len(result.Unknown) == 0 {
			break
		}
	}
	return result, nil
}

func (t Tombstones) retryParent(ctx context.Context, parent string, ids []int64, result *Retried) error {
	if len(ids) == 0 {
		ids = nil
	}
	for after, more := beginning(), true; more; {
		var failed []tombstone
		more = false
		err := t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, t.Names.Render(pageSQL), parent, after.consumeAfter, after.id, pageSize, ids)
			if err != nil {
				return err
			}
			var one tombstone
			var fails, wanted, last bool
			_, err = pgx.ForEachRow(rows, []any{&one.consumeAfter, &one.id, &fails, &wanted, &last}, func() error {
				if last {
					after, more = one.position, true
				}
				if !wanted {
					return nil
				}
				at, unmet := slices.BinarySearch(result.Unknown, one.id)
				switch {
				case fails:
					failed = append(failed, one)
				case unmet: // Or this very retry has put it behind its position.
					result.Due++
				}
				if unmet {
					result.Unknown = slices.Delete(result.Unknown, at, at+1)
				}
				return nil
			})
			return err
		})
		if err != nil {
			return err
		}
		for slice := range slices.Chunk(failed, retrySize) {
			if err := t.retry(ctx, parent, slice, result); err != nil {
				return err
			}
		}
		if ids != nil && len(result.Unknown) == 0 {
			return nil
		}
	}
	return nil
}

// retry makes one batch due.
func (t Tombstones) retry(ctx context.Context, parent string, failed []tombstone, result *Retried) error {
	ids, times := places(failed)
	var retried, found int64
	err := t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, t.Names.Render(retrySQL), parent, ids, times).Scan(&retried, &found); err != nil {
			return err
		}
		if retried == 0 {
			return nil
		}
		return t.Wake(ctx, tx)
	})
	if err != nil {
		return err
	}
	result.Retried += retried
	result.Busy += found - retried
	return nil
}

// parents are the recorded names of one parent or of all that have tombstones.
func (t Tombstones) parents(ctx context.Context, one string) ([]string, error) {
	if one != "" {
		return []string{one}, nil
	}
	var names []string
	err := t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) (err error) {
		names, err = t.Names.Queries(tx).TombstoneParents(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for tombstones: %w", err)
	}
	return names, nil
}
