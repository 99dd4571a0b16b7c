SELECT
    ({waiting} OR coalesce((
        SELECT oldest.swept_at OPERATOR(pg_catalog.<=) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) interval '1 second') AND CASE
            WHEN oldest.swept_at OPERATOR(pg_catalog.<=) (pg_catalog.clock_timestamp()
                OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $6::pg_catalog.float8)) THEN true
            WHEN oldest.prepared IS NOT NULL THEN NOT oldest.prepared OPERATOR(pg_catalog.&&) ARRAY({prepared})
            ELSE oldest.swept_at OPERATOR(pg_catalog.<) (SELECT present.horizon FROM ({horizon}) AS present)
        END
        FROM (
            SELECT swept.swept_at, swept.prepared
            FROM "sexton".swept AS swept
            WHERE swept.database OPERATOR(pg_catalog.=) $2
              AND (swept.not_before IS NULL OR swept.not_before OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp())
            ORDER BY swept.id
            LIMIT 1
        ) AS oldest
    ), false))
    AND NOT ({barred}) AS now,
    coalesce((
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
    ), 0)::pg_catalog.float8,
    EXISTS (SELECT FROM "sexton".swept AS swept WHERE swept.database OPERATOR(pg_catalog.=) $2)
