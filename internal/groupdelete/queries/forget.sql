-- Deletes the lease and the fence $2 of a group $1 that does not exist. No other statement would: the group's own
-- deletion, which takes both along, was another session's.
WITH gone AS MATERIALIZED (
    SELECT $2::pg_catalog.text AS key WHERE NOT EXISTS (SELECT FROM {groups} AS target WHERE {id} = $1)
),
unleased AS (DELETE FROM "sexton".leases AS lease USING gone WHERE lease.key = gone.key)
DELETE FROM "sexton".fences AS fence USING gone WHERE fence.key = gone.key
