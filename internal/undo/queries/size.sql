-- Returns the size of the kept rows, and the age of the oldest deletion.
SELECT coalesce((
        SELECT pg_catalog.sum(pg_catalog.pg_total_relation_size(part.inhrelid))
        FROM pg_catalog.pg_inherits AS part
        WHERE part.inhparent = pg_catalog.to_regclass('"sexton".undo')::pg_catalog.oid
    ), 0)::bigint AS bytes,
    coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - (
        SELECT undo.kept_at FROM "sexton".undo AS undo WHERE undo.origins IS NULL ORDER BY undo.kept_at LIMIT 1
    )), 0)::pg_catalog.float8 AS oldest_age_seconds
