-- name: TombstoneParents :many
-- Returns the parent tables with pending tombstones, by one index probe per table for any
-- number of tombstones. Batches also run this query.
WITH RECURSIVE parent AS (
    (
        SELECT first.fully_qualified_table_name AS name
        FROM "public".loose_foreign_keys_deleted_records AS first
        WHERE first.status OPERATOR(pg_catalog.=) 1
        ORDER BY first.fully_qualified_table_name
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT next.fully_qualified_table_name
        FROM "public".loose_foreign_keys_deleted_records AS next
        WHERE next.status OPERATOR(pg_catalog.=) 1 AND next.fully_qualified_table_name OPERATOR(pg_catalog.>) parent.name
        ORDER BY next.fully_qualified_table_name
        LIMIT 1
    )
    FROM parent
    WHERE parent.name IS NOT NULL
)
SELECT parent.name::pg_catalog.text AS name
FROM parent
WHERE parent.name IS NOT NULL;

-- name: TombstoneBacklogs :many
-- Returns the number of pending tombstones of each parent, up to the cap, and the age of
-- the first one in the parent's queue.
SELECT
    parent.name::pg_catalog.text AS name,
    counted.pending::bigint AS pending,
    coalesce(greatest(extract(epoch FROM pg_catalog.clock_timestamp() - head.created_at), 0), 0)::pg_catalog.float8 AS oldest_age_seconds
FROM pg_catalog.unnest(@parents::pg_catalog.text[]) AS parent (name)
CROSS JOIN LATERAL (
    SELECT pg_catalog.count(*) AS pending
    FROM (
        SELECT
        FROM "public".loose_foreign_keys_deleted_records AS waiting
        WHERE waiting.fully_qualified_table_name = parent.name AND waiting.status = 1
        LIMIT @cap::int
    ) AS one
) AS counted
LEFT JOIN LATERAL (
    SELECT oldest.created_at
    FROM "public".loose_foreign_keys_deleted_records AS oldest
    WHERE oldest.fully_qualified_table_name = parent.name AND oldest.status = 1
    ORDER BY oldest.consume_after, oldest.id
    LIMIT 1
) AS head ON true
ORDER BY parent.name;

-- name: SweptKeys :one
-- Counts the parents of a database that will be rechecked, up to a limit of rows.
SELECT coalesce(pg_catalog.sum(pg_catalog.cardinality(coalesce(counted.integer_keys::pg_catalog.text[], counted.text_keys))), 0)::bigint AS keys
FROM (
    SELECT swept.integer_keys, swept.text_keys
    FROM "sexton".swept AS swept
    WHERE swept.database = @database
    LIMIT @cap::int
) AS counted;
