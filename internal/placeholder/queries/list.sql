-- Returns the states of ownerless rows with the reasons.
SELECT tried.id, tried.placeholder_user_id, tried.state, tried.deletion_attempts,
    CASE WHEN pg_catalog.isfinite(tried.last_deletion_attempt_at) THEN tried.last_deletion_attempt_at END,
    CASE WHEN tried.state = 'deferred' AND pg_catalog.isfinite(tried.last_deletion_attempt_at) THEN {next_attempt} END,
    coalesce(tried.last_error, ''), tried.blocked_by
FROM (
    SELECT detail.*,
        CASE
            WHEN NOT {unqueued} THEN 'queued'
            WHEN {waits} THEN 'scheduled'
            WHEN NOT {placeholder} THEN 'obsolete'
            WHEN detail.deletion_attempts >= $1 THEN 'given_up'
            WHEN detail.last_deletion_attempt_at IS NULL OR detail.last_deletion_attempt_at < {since} THEN 'due'
            ELSE 'deferred'
        END AS state
    FROM {from} AS detail
) AS tried
