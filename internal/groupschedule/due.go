package groupschedule

// dueSQL are the groups that a pass may take now: marked before the cutoff, with a schedule, or with a destruction that has
// begun; not put off, and without a job. The list of jobs is a hashed one, whatever the planner believes of its length.
const dueSQL = `
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
          -- A pass does nothing without a period.
          AND (SELECT "sexton".group_deletion_cutoff()) IS NOT NULL
    ) AS due (id)
    WHERE NOT EXISTS (
          SELECT FROM "sexton".group_deletion_failures AS failure
          WHERE failure.group_id OPERATOR(pg_catalog.=) due.id AND failure.retry_at OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp()
      )
      AND NOT due.id OPERATOR(pg_catalog.=) ANY (
          SELECT (job.args OPERATOR(pg_catalog.->>) 'group_id')::bigint
          FROM "sexton".river_job AS job
          WHERE job.kind OPERATOR(pg_catalog.=) 'group_destroy'
            AND job.state OPERATOR(pg_catalog.=) ANY ('{available,pending,running,retryable,scheduled}')
            AND job.args OPERATOR(pg_catalog.->>) 'group_id' IS NOT NULL
      )`

// DueSQL is a condition, to be rendered for the configured schemas: some group can be decided about now.
const DueSQL = `EXISTS (SELECT` + dueSQL + `)`

// CountDueSQL is an expression, to be rendered for the configured schemas: about how many it can be, 10,001 where there are more.
const CountDueSQL = `(SELECT pg_catalog.count(*) FROM (SELECT` + dueSQL + ` LIMIT 10001) AS counted)`

// NextDueSQL is an expression, to be rendered for the configured schemas: in how many seconds (float8) the next group falls
// due, at a midnight (UTC) or when it has been put off for long enough; 0 where none does.
const NextDueSQL = `coalesce((
    SELECT extract(epoch FROM least(
        (
            SELECT (pg_catalog.min(groups.marked_for_deletion_on)
                OPERATOR(pg_catalog.+) (today.day OPERATOR(pg_catalog.-) today.cutoff) OPERATOR(pg_catalog.+) 1)::timestamp AT TIME ZONE 'UTC'
            FROM "public".group_deletion_schedules AS schedule
            JOIN "public".groups ON groups.id OPERATOR(pg_catalog.=) schedule.group_id
            WHERE groups.marked_for_deletion_on OPERATOR(pg_catalog.>=) today.cutoff
        ),
        (SELECT pg_catalog.min(failure.retry_at) FROM "sexton".group_deletion_failures AS failure
            WHERE failure.retry_at OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp())
    ) OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp())
    FROM (SELECT (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date, "sexton".group_deletion_cutoff()) AS today (day, cutoff)
), 0)::pg_catalog.float8`

// pageSQL is a page of due groups above $1 by their ids, $2 at most.
const pageSQL = `SELECT due.id` + dueSQL + `
      AND due.id OPERATOR(pg_catalog.>) $1
    ORDER BY due.id
    LIMIT $2`

// openingSQL says whether there is a period at all, and when the first of a pass's destructions may begin: $1 seconds after
// the last in line, one of an earlier pass or one that was asked for without waiting. Destructions that are tried
// again do not count, as their time is theirs. The line ends at the first gap of an hour, or of three places where these are
// wider: somebody may have asked for a destruction next year, which the others need not wait for. Without spacing there is no line.
const openingSQL = `
WITH line AS (
    SELECT
        job.scheduled_at,
        job.scheduled_at OPERATOR(pg_catalog.-)
            greatest(pg_catalog.statement_timestamp(), pg_catalog.lag(job.scheduled_at) OVER (ORDER BY job.scheduled_at)) AS gap
    FROM "sexton".river_job AS job
    WHERE job.kind OPERATOR(pg_catalog.=) 'group_destroy' AND job.state OPERATOR(pg_catalog.=) ANY ('{available,running,scheduled,completed}')
      AND $1::pg_catalog.float8 OPERATOR(pg_catalog.>) 0
)
SELECT
    "sexton".group_deletion_cutoff(),
    greatest(pg_catalog.statement_timestamp(), (
        SELECT pg_catalog.max(line.scheduled_at) OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $1::pg_catalog.float8)
        FROM line
        WHERE line.scheduled_at OPERATOR(pg_catalog.<) coalesce((
            SELECT pg_catalog.min(line.scheduled_at)
            FROM line
            WHERE line.gap OPERATOR(pg_catalog.>) 
                greatest(interval '1 hour', pg_catalog.make_interval(secs => 3::pg_catalog.float8 OPERATOR(pg_catalog.*) $1::pg_catalog.float8))
        ), 'infinity')
    ))`

// decideSQL decides about group $1, whose destruction would begin at $2.
const decideSQL = `
SELECT decided.outcome, coalesce(decided.user_id, 0), coalesce(decided.path, ''), coalesce(decided.reason, '')
FROM "sexton".decide_group_deletion($1, $2) AS decided`

// putOffSQL records why nothing could be decided about group $1, and puts it off: for 1, 2, 4 and so on minutes, at most a day.
const putOffSQL = `
INSERT INTO "sexton".group_deletion_failures AS failure (group_id, last_error, retry_at)
VALUES ($1, $2, pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) interval '1 minute')
ON CONFLICT (group_id) DO UPDATE
SET attempts = failure.attempts OPERATOR(pg_catalog.+) 1,
    last_error = excluded.last_error,
    retry_at = pg_catalog.clock_timestamp()
        OPERATOR(pg_catalog.+) least(interval '1 minute' OPERATOR(pg_catalog.*) pg_catalog.power(2, least(failure.attempts, 20)), interval '1 day'),
    updated_at = pg_catalog.clock_timestamp()`

// forgetSQL removes what is recorded of groups that are not to be deleted any more.
const forgetSQL = `
DELETE FROM "sexton".group_deletion_failures AS failure
WHERE NOT EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id OPERATOR(pg_catalog.=) failure.group_id)`

// forgetGoneSQL removes what is recorded of destructions whose group somebody else has deleted meanwhile.
const forgetGoneSQL = `
DELETE FROM "sexton".group_destructions AS destruction
WHERE NOT EXISTS (SELECT FROM "public".groups WHERE groups.id OPERATOR(pg_catalog.=) destruction.group_id)`
