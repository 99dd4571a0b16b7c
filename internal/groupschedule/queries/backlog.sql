-- Returns the counts of groupschedule.Backlog. The period is today minus the cutoff.
-- "sexton".backlog uses the same definition of due groups. Counts stop at 10,000. $1 is
-- the number of failures after which a group is stuck.
SELECT
    coalesce(today.day - today.cutoff, 0)::bigint,
    due.pending,
    due.capped,
    (SELECT pg_catalog.count(*) FROM (
        SELECT FROM "public".group_deletion_schedules AS schedule JOIN "public".groups ON groups.id = schedule.group_id
        WHERE groups.marked_for_deletion_on >= coalesce(today.cutoff, '-infinity')
        LIMIT 10000
    ) AS counted),
    least(due.deferred, 10000),
    due.deferred > 10000,
    (SELECT pg_catalog.count(*) FROM (SELECT FROM "sexton".group_destructions LIMIT 10000) AS counted),
    (SELECT pg_catalog.count(*) FROM (
        SELECT FROM "sexton".group_destructions AS destruction WHERE destruction.attempts >= $1
        UNION ALL
        SELECT FROM "sexton".group_deletion_failures AS failure WHERE failure.attempts >= $1
        LIMIT 10000
    ) AS counted),
    (SELECT pg_catalog.count(*) FROM (
        SELECT FROM "public".groups
        WHERE groups.marked_for_deletion_on IS NOT NULL
          AND NOT EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = groups.id)
        LIMIT 10000
    ) AS counted)
FROM (SELECT (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date, "sexton".group_deletion_cutoff()) AS today (day, cutoff)
CROSS JOIN "sexton".backlog_of_adjourned_groups() AS due
