-- The events after $1 of the groups $2 and the projects $3. Projects among $4 were deleted by the application itself.
WITH told AS MATERIALIZED (
    SELECT event.id, event.kind, event.payload, (event.payload ->> 'group_id')::bigint AS group_id,
        (event.payload ->> 'parent_id')::bigint AS parent_id, (event.payload ->> 'project_id')::bigint AS project_id
    FROM "sexton".events AS event
    WHERE event.id > $1 AND event.kind IN ('group_destroyed', 'project_destroyed', 'group_restored')
)
SELECT
    (SELECT count(*) FROM "public".groups AS found WHERE found.id = ANY ($2::bigint[]))
    + (SELECT count(*) FROM "public".projects AS found WHERE found.id = ANY ($3::bigint[])),
    (SELECT count(*) FROM unnest($2) AS gone (id)
        WHERE NOT EXISTS (SELECT FROM told WHERE told.kind = 'group_destroyed' AND told.group_id = gone.id))
    + (SELECT count(*) FROM unnest($3) AS gone (id)
        WHERE gone.id <> ALL ($4::bigint[])
        AND NOT EXISTS (SELECT FROM told WHERE told.kind = 'project_destroyed' AND told.project_id = gone.id)),
    (SELECT count(*) FROM told AS early JOIN told AS child ON child.id > early.id
        AND early.group_id = CASE child.kind WHEN 'group_destroyed' THEN child.parent_id WHEN 'project_destroyed' THEN child.group_id END
        WHERE early.kind = 'group_destroyed'),
    (SELECT count(*) FROM told WHERE told.kind = 'group_restored' AND told.payload ->> 'reason' <> 'cancelled')
