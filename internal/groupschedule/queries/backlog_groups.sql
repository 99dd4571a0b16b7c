-- Returns the first $1 groups: groups that are being destroyed, then the others in the
-- order in which they become due. If $4 is true, it returns failed groups instead, with
-- the most attempts first. $2 is the number of failures after which a group is stuck. $3
-- is the id of a single group, or NULL.
WITH today (day, cutoff) AS (
    SELECT (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date, "sexton".group_deletion_cutoff()
), listed (id) AS (
    SELECT groups.id FROM "public".groups WHERE NOT $4::boolean AND groups.marked_for_deletion_on IS NOT NULL
    UNION
    SELECT schedule.group_id FROM "public".group_deletion_schedules AS schedule WHERE NOT $4
    UNION
    SELECT destruction.group_id FROM "sexton".group_destructions AS destruction WHERE NOT $4 OR destruction.last_error IS NOT NULL
    UNION
    SELECT failure.group_id FROM "sexton".group_deletion_failures AS failure WHERE $4
), jobs AS (
    SELECT DISTINCT ON (1) job.args ->> 'group_id'::pg_catalog.text AS group_id, job.scheduled_at, job.id
    FROM "sexton".river_job AS job
    WHERE job.queue = 'group_destroy' AND job.kind = 'group_destroy' AND job.state = ANY ('{available,pending,running,retryable,scheduled}')
    ORDER BY 1, job.scheduled_at
)
SELECT
    pg_catalog.to_jsonb(listed.id), coalesce(groups.path, ''), pg_catalog.to_jsonb(groups.parent_id), pg_catalog.to_jsonb(coalesce(schedule.user_id, destruction.user_id)),
    groups.marked_for_deletion_on::pg_catalog.text,
    CASE WHEN schedule.group_id IS NOT NULL THEN (groups.marked_for_deletion_on + (today.day - today.cutoff) + 1)::pg_catalog.text END,
    CASE
        WHEN greatest(destruction.attempts, failure.attempts) >= $2 THEN 'stuck'
        WHEN destruction.group_id IS NOT NULL THEN 'destroying'
        WHEN schedule.group_id IS NULL OR groups.marked_for_deletion_on IS NULL THEN 'unscheduled'
        WHEN jobs.group_id IS NOT NULL THEN 'enqueued'
        WHEN failure.retry_at > pg_catalog.statement_timestamp() THEN 'deferred'
        WHEN groups.marked_for_deletion_on < today.cutoff THEN 'due'
        ELSE 'adjourned'
    END,
    jobs.scheduled_at, destruction.begun_at, coalesce(destruction.step, ''), coalesce(destruction.done, 0), destruction.total,
    CASE WHEN destruction.done > 0 AND destruction.total >= destruction.done
        THEN extract(epoch FROM destruction.updated_at - destruction.begun_at)::pg_catalog.float8
            * (destruction.total - destruction.done)::pg_catalog.float8 / destruction.done::pg_catalog.float8
    END,
    last.attempts::bigint, coalesce(last.error, ''), coalesce(jobs.id, 0),
    CASE WHEN destruction.last_error IS NULL AND failure.retry_at < 'infinity' THEN failure.retry_at END
FROM listed
CROSS JOIN today
LEFT JOIN "public".groups ON groups.id = listed.id
LEFT JOIN "public".group_deletion_schedules AS schedule ON schedule.group_id = listed.id
LEFT JOIN "sexton".group_destructions AS destruction ON destruction.group_id = listed.id
LEFT JOIN "sexton".group_deletion_failures AS failure ON failure.group_id = listed.id
LEFT JOIN jobs ON jobs.group_id = listed.id::pg_catalog.text
-- The error of a destruction has precedence over an error from before the destruction.
CROSS JOIN LATERAL (
    SELECT
        CASE WHEN destruction.last_error IS NULL THEN coalesce(failure.attempts, destruction.attempts, 0) ELSE destruction.attempts END AS attempts,
        coalesce(destruction.last_error, failure.last_error) AS error
) AS last
WHERE $3::pg_catalog.text IS NULL OR listed.id::pg_catalog.text = $3
ORDER BY CASE WHEN $4 THEN -last.attempts END, CASE WHEN NOT $4 THEN destruction.begun_at END NULLS LAST,
    CASE WHEN NOT $4 THEN groups.marked_for_deletion_on END, listed.id
LIMIT $1
