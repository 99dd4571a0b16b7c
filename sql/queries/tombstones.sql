-- name: TombstoneParents :many
-- Parent tables with waiting tombstones: one index probe each, however many tombstones there are.
WITH RECURSIVE parent AS (
    (
        SELECT first.fully_qualified_table_name AS name
        FROM "public".loose_foreign_keys_deleted_records AS first
        WHERE first.status = 1
        ORDER BY first.fully_qualified_table_name
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT next.fully_qualified_table_name
        FROM "public".loose_foreign_keys_deleted_records AS next
        WHERE next.status = 1 AND next.fully_qualified_table_name > parent.name
        ORDER BY next.fully_qualified_table_name
        LIMIT 1
    )
    FROM parent
    WHERE parent.name IS NOT NULL
)
SELECT parent.name::text AS name
FROM parent
WHERE parent.name IS NOT NULL;

-- name: TombstoneBacklog :one
-- Counts stop at the cap. The age is that of the row at the head of each parent's queue, as finding the
-- true oldest would read the whole backlog. The clock has to stand still for the index to be used.
SELECT
    (SELECT count(*) FROM (
        SELECT FROM "public".loose_foreign_keys_deleted_records AS pending
        WHERE pending.status = 1
        LIMIT @cap::int
    ) AS counted)::bigint AS pending,
    (SELECT count(*) FROM (
        SELECT FROM unnest(@parents::text[]) AS parent (name)
        CROSS JOIN LATERAL (
            SELECT FROM "public".loose_foreign_keys_deleted_records AS deferred
            WHERE deferred.status = 1
              AND deferred.fully_qualified_table_name = parent.name
              AND deferred.consume_after > statement_timestamp()
            LIMIT @cap::int
        ) AS one
        LIMIT @cap::int
    ) AS counted)::bigint AS deferred,
    coalesce((
        SELECT extract(epoch FROM min(next.consume_after))
        FROM unnest(@parents::text[]) AS parent (name)
        CROSS JOIN LATERAL (
            SELECT upcoming.consume_after
            FROM "public".loose_foreign_keys_deleted_records AS upcoming
            WHERE upcoming.status = 1
              AND upcoming.fully_qualified_table_name = parent.name
              AND upcoming.consume_after > statement_timestamp()
            ORDER BY upcoming.consume_after
            LIMIT 1
        ) AS next
    ), 0)::float8 AS deferred_until_epoch,
    coalesce((
        SELECT next.last_error
        FROM unnest(@parents::text[]) AS parent (name)
        CROSS JOIN LATERAL (
            SELECT upcoming.consume_after, upcoming.last_error
            FROM "public".loose_foreign_keys_deleted_records AS upcoming
            WHERE upcoming.status = 1
              AND upcoming.fully_qualified_table_name = parent.name
              AND upcoming.consume_after > statement_timestamp()
            ORDER BY upcoming.consume_after
            LIMIT 1
        ) AS next
        ORDER BY next.consume_after
        LIMIT 1
    ), '')::text AS deferred_reason,
    coalesce((
        SELECT extract(epoch FROM clock_timestamp() - min(head.created_at))
        FROM unnest(@parents::text[]) AS parent (name)
        CROSS JOIN LATERAL (
            SELECT oldest.created_at
            FROM "public".loose_foreign_keys_deleted_records AS oldest
            WHERE oldest.status = 1 AND oldest.fully_qualified_table_name = parent.name
            ORDER BY oldest.consume_after, oldest.id
            LIMIT 1
        ) AS head
    ), 0)::float8 AS oldest_age_seconds;

-- name: SweptKeys :one
-- Parents of a database that wait for their second look. The count stops at so many rows.
SELECT coalesce(sum(cardinality(coalesce(counted.integer_keys::text[], counted.text_keys))), 0)::bigint AS keys
FROM (
    SELECT swept.integer_keys, swept.text_keys
    FROM "sexton".swept AS swept
    WHERE swept.database = @database
    LIMIT @cap::int
) AS counted;

-- name: SweptAdopt :execrows
-- Takes over what waits for its second look under a name that no configured database has any more.
UPDATE "sexton".swept AS swept
SET database = @database
WHERE swept.database <> ALL (@configured::text[]) AND swept.parent = ANY (@parents::text[]);
