-- What became of the marked groups, by the events after $1. Projects among $2 were deleted by the application itself: they have no event, and may
-- be missing from restored groups. $3 are rows that are left below destroyed groups.
WITH told AS MATERIALIZED (
    SELECT event.id, event.kind, event.payload, (event.payload ->> 'group_id')::bigint AS group_id,
        (event.payload ->> 'parent_id')::bigint AS parent_id, (event.payload ->> 'project_id')::bigint AS project_id
    FROM "sexton".events AS event
    WHERE event.id > $1 AND event.kind IN ('group_destroyed', 'project_destroyed', 'group_restored')
), groups AS (
    SELECT marked.restored, below.id FROM demo.marked, unnest(marked.groups) AS below (id)
), projects AS (
    SELECT marked.restored, below.id FROM demo.marked, unnest(marked.projects) AS below (id)
), due AS (
    SELECT groups.id, 'group_destroyed' AS event, EXISTS (SELECT FROM "public".groups AS found WHERE found.id = groups.id) AS left
    FROM groups WHERE NOT groups.restored
    UNION ALL
    SELECT projects.id, CASE WHEN projects.id <> ALL ($2::bigint[]) THEN 'project_destroyed' END,
        EXISTS (SELECT FROM "public".projects AS found WHERE found.id = projects.id)
    FROM projects WHERE NOT projects.restored
), restored AS (
    SELECT EXISTS (
            SELECT FROM "public".groups AS own WHERE own.id = marked.group_id AND own.path = marked.path AND own.marked_for_deletion_on IS NULL
        )
        AND NOT EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = marked.group_id)
        AND NOT EXISTS (
            SELECT FROM unnest(marked.groups) AS was (id) WHERE NOT EXISTS (SELECT FROM "public".groups AS own WHERE own.id = was.id)
        )
        AND NOT EXISTS (
            SELECT FROM unnest(marked.projects) AS was (id)
            WHERE was.id <> ALL ($2) AND NOT EXISTS (SELECT FROM "public".projects AS project WHERE project.id = was.id)
        ) AS whole
    FROM demo.marked WHERE marked.restored
)
SELECT 'groups', 'groups were to go, sub-groups included', count(*), false FROM groups WHERE NOT groups.restored
UNION ALL
SELECT 'projects', 'projects in them', count(*), false FROM projects WHERE NOT projects.restored
UNION ALL
SELECT 'left', 'of these groups and projects are left', count(*), true FROM due WHERE due.left
UNION ALL
SELECT 'rows_below', 'rows are left below destroyed groups', $3::bigint, true
UNION ALL
SELECT 'events_missing', 'of them have no event', count(*), true FROM due
WHERE NOT EXISTS (
    SELECT FROM told WHERE told.kind = due.event AND due.id = CASE told.kind WHEN 'group_destroyed' THEN told.group_id ELSE told.project_id END
) AND due.event IS NOT NULL
UNION ALL
SELECT 'events_early', 'events came before those of what stood below', count(*), true
FROM told AS early JOIN told AS child ON child.id > early.id
    AND early.group_id = CASE child.kind WHEN 'group_destroyed' THEN child.parent_id WHEN 'project_destroyed' THEN child.group_id END
WHERE early.kind = 'group_destroyed'
UNION ALL
SELECT 'restored', 'groups were restored in time', count(*), false FROM restored
UNION ALL
SELECT 'not_whole', 'restored groups are not what they were', count(*), true FROM restored WHERE NOT restored.whole
UNION ALL
SELECT 'restored_by_system', 'restored, as their requester may not remove them', count(*), false FROM told
WHERE told.kind = 'group_restored' AND told.payload ->> 'reason' <> 'cancelled'
