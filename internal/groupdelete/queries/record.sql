-- Records the present step and the number of deleted rows of the group $1.
UPDATE "sexton".group_destructions AS progress
SET step = $2, done = greatest(progress.done, $3), updated_at = pg_catalog.clock_timestamp()
WHERE progress.group_id OPERATOR(pg_catalog.=) $1
    AND ((progress.step OPERATOR(pg_catalog.=) $2) IS NOT TRUE OR progress.done OPERATOR(pg_catalog.<) $3)
