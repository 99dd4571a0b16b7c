-- Returns the group or its nearest ancestor whose destruction has begun, or NULL.
CREATE OR REPLACE FUNCTION "sexton".group_destruction_above(group_id "{group}")
RETURNS "{group}"
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
    WITH RECURSIVE above AS (
        SELECT groups.id, groups.parent_id, 0 AS height FROM "public".groups WHERE groups.id = group_destruction_above.group_id
        UNION ALL
        SELECT parent.id, parent.parent_id, above.height + 1
        FROM above
        JOIN "public".groups AS parent ON parent.id = above.parent_id
        -- The limit is deeper than any tree of groups. It ends the recursion if a group
        -- is its own ancestor.
        WHERE above.height < 100
    )
    SELECT above.id
    FROM above
    JOIN "sexton".group_destructions AS destruction ON destruction.group_id = above.id
    ORDER BY above.height
    LIMIT 1;
$sexton$;

COMMENT ON FUNCTION "sexton".group_destruction_above("{group}") IS 'Sexton: the group or ancestor whose destruction has begun';
