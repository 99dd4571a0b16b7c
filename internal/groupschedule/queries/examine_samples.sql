-- Returns the first groups with a mark and without a schedule, and the first groups that
-- have failed at least $1 times.
SELECT
    ARRAY(
        SELECT groups.id::pg_catalog.text FROM "public".groups
        WHERE groups.marked_for_deletion_on IS NOT NULL
          AND NOT EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = groups.id)
        ORDER BY groups.marked_for_deletion_on, groups.id
        LIMIT 4
    ),
    ARRAY(
        SELECT failed.group_id::pg_catalog.text
        FROM (
            SELECT destruction.group_id, destruction.attempts FROM "sexton".group_destructions AS destruction
            UNION ALL
            SELECT failure.group_id, failure.attempts FROM "sexton".group_deletion_failures AS failure
        ) AS failed
        WHERE failed.attempts >= $1
        ORDER BY failed.attempts DESC, failed.group_id
        LIMIT 4
    )
