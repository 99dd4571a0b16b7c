-- name: TombstoneParents :many
-- Parent tables with waiting tombstones: one index probe each, however many tombstones there are. Batches read it, too.
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
-- How many tombstones wait for each of these parents, and the age of the one at the head of the parent's queue. Counts stop at the cap.
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
-- Parents of a database that wait for their second look. The count stops at so many rows.
SELECT coalesce(pg_catalog.sum(pg_catalog.cardinality(coalesce(counted.integer_keys::pg_catalog.text[], counted.text_keys))), 0)::bigint AS keys
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
WHERE swept.database <> ALL (@configured::pg_catalog.text[]) AND swept.parent = ANY (@parents::pg_catalog.text[]);

-- name: TombstonesOfNoParent :many
-- Where tombstones of these names come from that are about none of the parents that are defined, among the first 10,000 that wait under each name.
-- The next run gives the others to their parents, by the same rule: adopt.sql.
WITH printed AS MATERIALIZED (
    -- A database may print all names in quotes, which tombstones have where they need them.
    SELECT CASE WHEN pg_catalog.set_config('quote_all_identifiers', 'off', true) IS NOT NULL THEN '%I.%I' END AS name
), home AS MATERIALIZED (
    SELECT class.oid
    FROM printed
    CROSS JOIN pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid OPERATOR(pg_catalog.=) class.relnamespace
    WHERE pg_catalog.format(printed.name, namespace.nspname, class.relname) OPERATOR(pg_catalog.=) ANY (@defined::pg_catalog.text[])
), stranger AS MATERIALIZED (
    SELECT named.name, EXISTS (
        SELECT FROM pg_catalog.pg_class AS class
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid OPERATOR(pg_catalog.=) class.relnamespace
        WHERE pg_catalog.format(printed.name, namespace.nspname, class.relname) OPERATOR(pg_catalog.=) named.name
    ) AS present
    FROM printed
    CROSS JOIN pg_catalog.unnest(@names::pg_catalog.text[]) AS named (name)
)
SELECT DISTINCT stranger.name::pg_catalog.text AS name, waiting.tracked_as, coalesce(waiting.parent_oid::bigint, 0)::bigint AS parent_oid
FROM stranger
CROSS JOIN LATERAL (
    SELECT tombstone.tracked_as, tombstone.parent_oid
    FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) stranger.name AND tombstone.status OPERATOR(pg_catalog.=) 1
    ORDER BY tombstone.consume_after, tombstone.id
    LIMIT 10000
) AS waiting
WHERE (waiting.tracked_as OPERATOR(pg_catalog.=) ANY (@defined::pg_catalog.text[])) IS NOT TRUE
  AND (stranger.present OR NOT EXISTS (SELECT FROM home WHERE home.oid OPERATOR(pg_catalog.=) waiting.parent_oid))
ORDER BY 1, 2, 3;
