UPDATE "sexton".group_destructions AS progress SET step = $2, updated_at = pg_catalog.clock_timestamp()
WHERE progress.group_id OPERATOR(pg_catalog.=) $1 AND (progress.step OPERATOR(pg_catalog.=) $2) IS NOT TRUE
