-- Returns at most $4 tombstones of each of the parents $1 that are marked for a recheck.
-- They come after all other tombstones of their parent.
SELECT parent.name, marked.*
FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.timestamptz[]), pg_catalog.unnest($3::bigint[]))
    AS parent (name, consume_after, id)
CROSS JOIN LATERAL (
    SELECT tombstone.id, tombstone.consume_after, tombstone.primary_key_value, tombstone.primary_key_text,
        extract(epoch FROM pg_catalog.clock_timestamp() - tombstone.created_at)::pg_catalog.float8 AS age, {origin} AS origin
    FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name = parent.name
      AND tombstone.status = 2
      AND tombstone.consume_after = 'infinity'
    ORDER BY tombstone.consume_after, tombstone.id
    LIMIT $4
) AS marked
