-- Returns the parents $1 whose first tombstone has been due for more than $2 seconds,
-- with one index probe per parent.
SELECT parent.name, head.consume_after
FROM pg_catalog.unnest($1::pg_catalog.text[]) AS parent (name)
CROSS JOIN LATERAL (
    SELECT tombstone.consume_after
    FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name = parent.name AND tombstone.status = 1
    ORDER BY tombstone.consume_after, tombstone.id
    LIMIT 1
) AS head
WHERE head.consume_after < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $2)
ORDER BY head.consume_after;
