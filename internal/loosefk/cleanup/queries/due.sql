SELECT
    EXISTS (
        SELECT FROM pg_catalog.unnest($3::pg_catalog.text[]) AS parent (name)
        WHERE EXISTS (
            SELECT FROM "public".loose_foreign_keys_deleted_records AS tombstone
            WHERE tombstone.fully_qualified_table_name = parent.name
              AND tombstone.status = 1
              AND tombstone.consume_after <= pg_catalog.statement_timestamp()
            ORDER BY tombstone.consume_after, tombstone.id
            OFFSET 0
        )
    ) AND NOT ({barred}) AS now,
    coalesce(least((
        SELECT extract(epoch FROM pg_catalog.min(next.consume_after) - pg_catalog.statement_timestamp())
        FROM pg_catalog.unnest($3::pg_catalog.text[]) AS parent (name)
        CROSS JOIN LATERAL (
            SELECT tombstone.consume_after
            FROM "public".loose_foreign_keys_deleted_records AS tombstone
            WHERE tombstone.fully_qualified_table_name = parent.name
              AND tombstone.status = 1
              AND tombstone.consume_after > pg_catalog.statement_timestamp()
              AND tombstone.consume_after < 'infinity'
            ORDER BY tombstone.consume_after
            LIMIT 1
        ) AS next
    ), CASE WHEN recheck.seconds > 0 THEN recheck.seconds END), 0)::pg_catalog.float8,
    coalesce(recheck.seconds <= 0, false)
FROM (
    SELECT (
        SELECT extract(epoch FROM oldest.swept_at - pg_catalog.clock_timestamp())
            + $4::pg_catalog.float8::pg_catalog.numeric
        FROM (
            SELECT swept.swept_at
            FROM "sexton".swept AS swept
            WHERE swept.database = $2
            ORDER BY swept.id
            LIMIT 1
        ) AS oldest
    ) AS seconds
) AS recheck
