-- How many rows does the user $1 have, how many without an owner, how many out of the queue; is it a placeholder, and does its job wait.
SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE detail.namespace_id IS NULL), pg_catalog.count(*) FILTER (WHERE {unqueued}),
    EXISTS (SELECT FROM "public".users AS placeholder
        WHERE placeholder.id = $1 AND placeholder.user_type = 15),
    coalesce(pg_catalog.bool_or({waits}), false)
FROM {detail}
WHERE detail.placeholder_user_id = $1
