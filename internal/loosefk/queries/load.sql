-- Returns at most $4 due tombstones of each of the parents $1 after a position ($2, $3),
-- in the order in which they are processed.
SELECT parent.name, due.*
FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.timestamptz[]), pg_catalog.unnest($3::bigint[]))
    AS parent (name, consume_after, id)
CROSS JOIN LATERAL (
    SELECT tombstone.id, tombstone.consume_after, tombstone.primary_key_value, tombstone.primary_key_text,
        extract(epoch FROM pg_catalog.clock_timestamp() - tombstone.created_at)::pg_catalog.float8 AS age, {origin} AS origin
    FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name = parent.name
      AND tombstone.status = 1
      AND tombstone.consume_after <= pg_catalog.statement_timestamp()
      AND (tombstone.consume_after, tombstone.id) > (parent.consume_after, parent.id)
    ORDER BY tombstone.consume_after, tombstone.id
    LIMIT $4
) AS due
