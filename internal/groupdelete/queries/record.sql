-- Records the current step and the number of deleted rows of the group $1.
UPDATE "sexton".group_destructions AS progress
SET step = $2, done = greatest(progress.done, $3), updated_at = pg_catalog.clock_timestamp()
WHERE progress.group_id = $1
    AND ((progress.step = $2) IS NOT TRUE OR progress.done < $3)
