-- Deletes the group $1 if its lineage $2 is unchanged, and if no rows refer to it or $4
-- is set. It also deletes the group's schedule, the record of its own destruction, and
-- its lease and fence $5. The deletion of the run's group $3 cannot be cancelled after
-- that. Returns whether the group was deleted, and for each foreign key whether rows
-- refer to the group by it.
WITH RECURSIVE looked AS MATERIALIZED (
    SELECT ARRAY[{live}]::boolean[] AS live,
        (SELECT begun.user_id FROM "sexton".group_destructions AS begun WHERE begun.group_id OPERATOR(pg_catalog.=) $3) AS user_id
    FROM {groups} AS target
    WHERE {id} OPERATOR(pg_catalog.=) $1 AND {lineage}
),
above AS (
    SELECT target.id, target.parent_id, target.path::pg_catalog.text AS path, 0 AS height FROM {marked} AS target WHERE target.id OPERATOR(pg_catalog.=) $1
    UNION ALL
    SELECT parent.id, parent.parent_id, parent.path::pg_catalog.text, above.height OPERATOR(pg_catalog.+) 1
    FROM above
    JOIN {marked} AS parent ON parent.id OPERATOR(pg_catalog.=) above.parent_id
    WHERE above.height OPERATOR(pg_catalog.<) 100
),
deleted AS (
    DELETE FROM {groups} AS target USING looked
    WHERE {id} OPERATOR(pg_catalog.=) $1 AND ($4 OR NOT true OPERATOR(pg_catalog.=) ANY (looked.live))
    RETURNING {id} AS id, {parent} AS parent_id, {path} AS path, looked.user_id
),
{schedule}
ended AS (DELETE FROM "sexton".group_destructions AS begun USING deleted WHERE begun.group_id OPERATOR(pg_catalog.=) deleted.id),
relieved AS (DELETE FROM "sexton".group_deletion_failures AS failure USING deleted WHERE failure.group_id OPERATOR(pg_catalog.=) deleted.id),
touched AS (
    UPDATE "sexton".group_destructions AS progress SET touched = true
    FROM deleted WHERE progress.group_id OPERATOR(pg_catalog.=) $3 AND progress.group_id OPERATOR(pg_catalog.<>) deleted.id AND NOT progress.touched
),
unleased AS (DELETE FROM "sexton".leases AS lease USING deleted WHERE lease.key OPERATOR(pg_catalog.=) $5),
unfenced AS (DELETE FROM "sexton".fences AS fence USING deleted WHERE fence.key OPERATOR(pg_catalog.=) $5),
event AS (
    INSERT INTO "sexton".events (kind, payload)
    SELECT 'group_destroyed', pg_catalog.jsonb_build_object(
        'group_id', deleted.id, 'parent_id', deleted.parent_id, 'path', deleted.path,
        'full_path', (SELECT pg_catalog.string_agg(above.path, '/' ORDER BY above.height DESC) FROM above),
        'user_id', deleted.user_id, 'destroyed_with', $3::{type})
    FROM deleted
)
SELECT EXISTS (SELECT FROM deleted), looked.live
FROM looked
