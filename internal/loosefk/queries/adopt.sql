-- Reads $2 tombstones of each of the names $1 behind a position ($6, $7), and gives them to the parents that they are about, of schemas $3
-- and tables $4 and called $5 in tombstones, due at once. Returns where it has come to with each name, and how many it has read.
WITH stranger AS MATERIALIZED (
    SELECT named.name, named.consume_after, named.id, EXISTS (
        SELECT FROM pg_catalog.pg_class AS class
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid OPERATOR(pg_catalog.=) class.relnamespace
        WHERE pg_catalog.format('%I.%I', namespace.nspname, class.relname) OPERATOR(pg_catalog.=) named.name
    ) AS present
    FROM ROWS FROM (
        pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($6::pg_catalog.timestamptz[]), pg_catalog.unnest($7::pg_catalog.int8[])
    ) AS named (name, consume_after, id)
), home AS MATERIALIZED (
    SELECT known.recorded AS name, class.oid
    FROM unnest($3::pg_catalog.text[], $4::pg_catalog.text[], $5::pg_catalog.text[]) AS known (schema, name, recorded)
    LEFT JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname OPERATOR(pg_catalog.=) known.schema
    LEFT JOIN pg_catalog.pg_class AS class ON class.relnamespace OPERATOR(pg_catalog.=) namespace.oid AND class.relname OPERATOR(pg_catalog.=) known.name
), page AS MATERIALIZED (
    SELECT stranger.name AS stranger, waiting.tuple, waiting.consume_after, waiting.id, (
        SELECT home.name
        FROM home
        WHERE NOT stranger.present AND home.oid OPERATOR(pg_catalog.=) waiting.parent_oid OR home.name OPERATOR(pg_catalog.=) waiting.tracked_as
        ORDER BY home.name OPERATOR(pg_catalog.=) waiting.tracked_as
        LIMIT 1
    ) AS home
    FROM stranger
    CROSS JOIN LATERAL (
        SELECT tombstone.ctid AS tuple, tombstone.consume_after, tombstone.id, tombstone.parent_oid, tombstone.tracked_as
        FROM "public".loose_foreign_keys_deleted_records AS tombstone
        WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) stranger.name AND tombstone.status OPERATOR(pg_catalog.=) 1
            AND (tombstone.consume_after, tombstone.id) OPERATOR(pg_catalog.>) (stranger.consume_after, stranger.id)
        ORDER BY tombstone.consume_after, tombstone.id
        LIMIT $2
    ) AS waiting
), free AS MATERIALIZED (
    SELECT waiting.ctid AS tuple, page.home
    FROM page
    CROSS JOIN LATERAL (
        SELECT tombstone.ctid
        FROM "public".loose_foreign_keys_deleted_records AS tombstone
        WHERE tombstone.ctid OPERATOR(pg_catalog.=) page.tuple
            AND tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) page.stranger AND tombstone.status OPERATOR(pg_catalog.=) 1
        OFFSET 0
        FOR UPDATE SKIP LOCKED
    ) AS waiting
    WHERE page.home IS NOT NULL
), adopted AS (
    UPDATE "public".loose_foreign_keys_deleted_records AS tombstone
    SET fully_qualified_table_name = free.home, consume_after = pg_catalog.clock_timestamp(), cleanup_attempts = 0
    FROM free
    WHERE tombstone.ctid OPERATOR(pg_catalog.=) free.tuple
)
SELECT DISTINCT ON (page.stranger) page.stranger, page.consume_after, page.id, pg_catalog.count(*) OVER (PARTITION BY page.stranger)
FROM page
ORDER BY page.stranger, page.consume_after DESC, page.id DESC
