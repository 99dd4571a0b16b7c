-- The groups that a pass may take now: marked before the cutoff, with a schedule, or with a destruction that has begun; not put off, and
-- without a job. The list of jobs is a hashed one, whatever the planner believes of its length.
FROM (
    SELECT groups.id
    FROM "public".group_deletion_schedules AS schedule
    JOIN "public".groups ON groups.id = schedule.group_id
    WHERE groups.marked_for_deletion_on < (SELECT "sexton".group_deletion_cutoff())
    UNION ALL
    SELECT groups.id
    FROM "sexton".group_destructions AS destruction
    JOIN "public".groups ON groups.id = destruction.group_id
    LEFT JOIN "public".group_deletion_schedules AS schedule ON schedule.group_id = groups.id
    WHERE (schedule.group_id IS NOT NULL AND groups.marked_for_deletion_on < (SELECT "sexton".group_deletion_cutoff())) IS NOT TRUE
      -- A pass does nothing without a period.
      AND (SELECT "sexton".group_deletion_cutoff()) IS NOT NULL
) AS due (id)
WHERE NOT EXISTS (
      SELECT FROM "sexton".group_deletion_failures AS failure
      WHERE failure.group_id = due.id AND failure.retry_at > pg_catalog.statement_timestamp()
  )
  AND NOT due.id::pg_catalog.text = ANY (
      SELECT job.args ->> 'group_id'
      FROM "sexton".river_job AS job
      WHERE job.queue = 'group_destroy' AND job.kind = 'group_destroy'
        AND job.state = ANY ('{available,pending,running,retryable,scheduled}')
        AND job.args ->> 'group_id' IS NOT NULL
  )
