-- Returns whether a tombstone of database $1 that was removed more than $2 seconds ago
-- must be rechecked, whether a tombstone is marked for a recheck now, and whether
-- tombstones have the column origin.
SELECT coalesce((
    SELECT oldest.swept_at <= (pg_catalog.clock_timestamp()
        - pg_catalog.make_interval(secs => $2::pg_catalog.float8))
    FROM (SELECT swept.swept_at FROM "sexton".swept AS swept WHERE swept.database = $1 ORDER BY swept.id LIMIT 1) AS oldest
), false), EXISTS (
    SELECT FROM pg_catalog.unnest($3::pg_catalog.text[]) AS parent (name)
    WHERE EXISTS (
        SELECT FROM "public".loose_foreign_keys_deleted_records AS tombstone
        WHERE tombstone.fully_qualified_table_name = parent.name
          AND tombstone.status = 2
          AND tombstone.consume_after = 'infinity'
        OFFSET 0
    )
), EXISTS (
    SELECT FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = '"public".loose_foreign_keys_deleted_records'::pg_catalog.regclass AND a.attname = 'origin' AND NOT a.attisdropped
)
