-- Records the reason for which a destruction cannot begin, unless it has begun, and
-- defers the group for $3 seconds.
INSERT INTO "sexton".group_deletion_failures AS failure (group_id, last_error, retry_at)
SELECT $1::{type}, $2::pg_catalog.text, pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $3)
WHERE NOT EXISTS (SELECT FROM "sexton".group_destructions AS begun WHERE begun.group_id = $1)
ON CONFLICT (group_id) DO UPDATE
SET attempts = failure.attempts + 1, last_error = excluded.last_error, retry_at = excluded.retry_at,
    updated_at = pg_catalog.clock_timestamp()
