coalesce((
    SELECT extract(epoch FROM least(
        (
            SELECT (pg_catalog.min(groups.marked_for_deletion_on)
                + (today.day - today.cutoff) + 1)::timestamp AT TIME ZONE 'UTC'
            FROM "public".group_deletion_schedules AS schedule
            JOIN "public".groups ON groups.id OPERATOR(pg_catalog.=) schedule.group_id
            WHERE groups.marked_for_deletion_on >= today.cutoff
        ),
        (SELECT pg_catalog.min(failure.retry_at) FROM "sexton".group_deletion_failures AS failure
            WHERE failure.retry_at > pg_catalog.statement_timestamp())
    ) - pg_catalog.statement_timestamp())
    FROM (SELECT (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date, "sexton".group_deletion_cutoff()) AS today (day, cutoff)
), 0)::pg_catalog.float8
