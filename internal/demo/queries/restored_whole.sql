SELECT
    EXISTS (SELECT FROM "public".groups AS own WHERE own.id = $1 AND own.path = $2 AND own.marked_for_deletion_on IS NULL)
    AND NOT EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = $1)
    AND NOT EXISTS (SELECT FROM unnest($3::bigint[]) AS was (id) WHERE NOT EXISTS (SELECT FROM "public".groups AS own WHERE own.id = was.id))
    AND NOT EXISTS (
        SELECT FROM unnest($4::bigint[]) AS was (id)
        WHERE was.id <> ALL ($5::bigint[]) AND NOT EXISTS (SELECT FROM "public".projects AS project WHERE project.id = was.id)
    )
