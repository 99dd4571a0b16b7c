-- Selects the groups that are due: marked before the cutoff with a schedule, or with a
-- destruction that has begun, not deferred, and without a job. = ANY (subquery) makes the
-- planner hash the list of jobs, whatever length it estimates.
FROM (
    SELECT groups.id
    FROM "public".group_deletion_schedules AS schedule
    JOIN "public".groups ON groups.id OPERATOR(pg_catalog.=) schedule.group_id
    WHERE groups.marked_for_deletion_on OPERATOR(pg_catalog.<) (SELECT "sexton".group_deletion_cutoff())
    UNION ALL
    SELECT groups.id
    FROM "sexton".group_destructions AS destruction
    JOIN "public".groups ON groups.id OPERATOR(pg_catalog.=) destruction.group_id
    LEFT JOIN "public".group_deletion_schedules AS schedule ON schedule.group_id OPERATOR(pg_catalog.=) groups.id
    WHERE (schedule.group_id IS NOT NULL AND groups.marked_for_deletion_on OPERATOR(pg_catalog.<) (SELECT "sexton".group_deletion_cutoff())) IS NOT TRUE
      -- Without a period, a pass does nothing.
      AND (SELECT "sexton".group_deletion_cutoff()) IS NOT NULL
) AS due (id)
WHERE NOT EXISTS (
      SELECT FROM "sexton".group_deletion_failures AS failure
      WHERE failure.group_id OPERATOR(pg_catalog.=) due.id AND failure.retry_at OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp()
  )
  AND NOT due.id::pg_catalog.text OPERATOR(pg_catalog.=) ANY (
      SELECT job.args OPERATOR(pg_catalog.->>) 'group_id'
      FROM "sexton".river_job AS job
      WHERE job.queue OPERATOR(pg_catalog.=) 'group_destroy' AND job.kind OPERATOR(pg_catalog.=) 'group_destroy'
        AND job.state OPERATOR(pg_catalog.=) ANY ('{available,pending,running,retryable,scheduled}')
        AND job.args OPERATOR(pg_catalog.->>) 'group_id' IS NOT NULL
  )
