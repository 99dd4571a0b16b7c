SELECT
    {waiting} AND NOT ({barred}) AS now,
    coalesce(least((
        SELECT extract(epoch FROM pg_catalog.min(next.consume_after) OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp())
        FROM pg_catalog.unnest($3::pg_catalog.text[]) AS parent (name)
        CROSS JOIN LATERAL (
            SELECT tombstone.consume_after
            FROM "public".loose_foreign_keys_deleted_records AS tombstone
            WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) parent.name
              AND tombstone.status OPERATOR(pg_catalog.=) 1
              AND tombstone.consume_after OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp()
              AND tombstone.consume_after OPERATOR(pg_catalog.<) 'infinity'
            ORDER BY tombstone.consume_after
            LIMIT 1
        ) AS next
    ), CASE WHEN recheck.seconds OPERATOR(pg_catalog.>) 0 THEN recheck.seconds END), 0)::pg_catalog.float8,
    coalesce(recheck.seconds OPERATOR(pg_catalog.<=) 0, false)
FROM (
    SELECT (
        SELECT extract(epoch FROM oldest.swept_at OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp())
            OPERATOR(pg_catalog.+) $4::pg_catalog.float8::pg_catalog.numeric
        FROM (
            SELECT swept.swept_at
            FROM "sexton".swept AS swept
            WHERE swept.database OPERATOR(pg_catalog.=) $2
            ORDER BY swept.id
            LIMIT 1
        ) AS oldest
    ) AS seconds
) AS recheck
