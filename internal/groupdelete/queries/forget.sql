-- Deletes the lease and the fence $2 if the group $1 does not exist. Another session has
-- deleted the group, so finish.sql has not deleted them.
WITH gone AS MATERIALIZED (
    SELECT $2::pg_catalog.text AS key WHERE NOT EXISTS (SELECT FROM {groups} AS target WHERE {id} = $1)
),
unleased AS (DELETE FROM "sexton".leases AS lease USING gone WHERE lease.key = gone.key)
DELETE FROM "sexton".fences AS fence USING gone WHERE fence.key = gone.key
