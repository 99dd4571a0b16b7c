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

-- name: TombstoneBacklogs :many
-- How many tombstones wait for each of these parents, and the age of the one at the head of the parent's queue. Counts stop at the cap.
SELECT
    parent.name::text AS name,
    counted.pending::bigint AS pending,
    coalesce(greatest(extract(epoch FROM clock_timestamp() - head.created_at), 0), 0)::float8 AS oldest_age_seconds
FROM unnest(@parents::text[]) AS parent (name)
CROSS JOIN LATERAL (
    SELECT count(*) AS pending
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
