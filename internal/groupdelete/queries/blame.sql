-- Counts an attempt of a group whose destruction has begun.
UPDATE "sexton".group_destructions AS progress
SET attempts = progress.attempts + 1, last_error = $2, updated_at = pg_catalog.clock_timestamp()
WHERE progress.group_id = $1
