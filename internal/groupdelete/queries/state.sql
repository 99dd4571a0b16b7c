-- Returns the state of the group $1. permitted reports whether the user who scheduled the
-- group last may remove it.
SELECT begun.group_id IS NOT NULL AS begun,
    target.marked_for_deletion_on IS NOT NULL AS marked,
    schedule.group_id IS NOT NULL AS scheduled,
    coalesce(target.marked_for_deletion_on OPERATOR(pg_catalog.<) cutoff.date, false) AS due,
    cutoff.date IS NULL AS undated,
    schedule.group_id IS NOT NULL AND coalesce("sexton".may_remove_group(schedule.user_id, target.id), false) AS permitted,
    coalesce(begun.done, 0) AS done, coalesce(begun.total, 0) AS total,
    coalesce(begun.done OPERATOR(pg_catalog.>) 0 OR begun.touched, false) AS touched, target.id, schedule.user_id
FROM {groups} AS target
CROSS JOIN "sexton".group_deletion_cutoff() AS cutoff (date)
LEFT JOIN "public".group_deletion_schedules AS schedule ON schedule.group_id OPERATOR(pg_catalog.=) target.id
LEFT JOIN "sexton".group_destructions AS begun ON begun.group_id OPERATOR(pg_catalog.=) target.id
WHERE target.id OPERATOR(pg_catalog.=) $1
