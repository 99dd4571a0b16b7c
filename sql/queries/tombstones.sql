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
