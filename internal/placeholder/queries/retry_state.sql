-- Returns for the user $1 the number of rows, of ownerless rows and of rows that are not
-- in the queue, whether it is a placeholder, and whether its job is waiting or running.
SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE detail.namespace_id IS NULL), pg_catalog.count(*) FILTER (WHERE {unqueued}),
    EXISTS (SELECT FROM "public".users AS placeholder
        WHERE placeholder.id = $1 AND placeholder.user_type = 15),
    coalesce(pg_catalog.bool_or({waits}), false)
FROM {detail}
WHERE detail.placeholder_user_id = $1
