-- Begins the destruction if the group is due and may be destroyed, and returns the
-- group's state.
WITH standing AS MATERIALIZED (
{state}
),
begun AS (
    INSERT INTO "sexton".group_destructions (group_id, user_id, begun_at, total)
    SELECT standing.id, standing.user_id, pg_catalog.clock_timestamp(), $2
    FROM standing
    WHERE NOT standing.begun AND standing.due AND standing.permitted
    RETURNING group_id
),
relieved AS (
    DELETE FROM "sexton".group_deletion_failures AS failure USING begun WHERE failure.group_id OPERATOR(pg_catalog.=) begun.group_id
)
SELECT standing.begun OR EXISTS (SELECT FROM begun), standing.marked, standing.scheduled, standing.due, standing.undated, standing.permitted,
    standing.done, standing.total, standing.touched
FROM standing
