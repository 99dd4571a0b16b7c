-- Records the error with which the decision about group $1 failed, and defers the group
-- for 1, 2, 4 and so on minutes, at most a day. If $3 is 0 instead of 1, no attempt is
-- counted, and the group is deferred for a minute.
INSERT INTO "sexton".group_deletion_failures AS failure (group_id, last_error, attempts, retry_at)
VALUES ($1, $2, $3, pg_catalog.clock_timestamp() + interval '1 minute')
ON CONFLICT (group_id) DO UPDATE
SET attempts = failure.attempts + excluded.attempts,
    last_error = excluded.last_error,
    retry_at = pg_catalog.clock_timestamp()
        + least(
            interval '1 minute' * pg_catalog.power(2, least(failure.attempts * excluded.attempts, 20)),
            interval '1 day'),
    updated_at = pg_catalog.clock_timestamp()
