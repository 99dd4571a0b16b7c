SELECT "sexton".undo_layout(CASE WHEN $3 THEN $1::pg_catalog.oid
    ELSE coalesce(pg_catalog.pg_partition_root($1::pg_catalog.oid)::pg_catalog.oid, $1::pg_catalog.oid) END, $2::pg_catalog.text[])
