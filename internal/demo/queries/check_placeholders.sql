-- A placeholder that waited for tombstones may enter the queue of the users to be deleted when nothing else is left to do.
SELECT
    (SELECT count(*) FROM unnest($1::bigint[]) AS gone (id) WHERE NOT EXISTS (SELECT FROM "public".users WHERE users.id = gone.id)),
    count(*) FILTER (WHERE queued.user_id IS NOT NULL),
    count(*) FILTER (WHERE queued.user_id IS NULL AND detail.last_error IS NOT NULL),
    count(*) FILTER (WHERE queued.user_id IS NULL AND detail.last_error IS NULL),
    (SELECT count(*) FROM demo.imported JOIN "public".notes AS note ON note.id = imported.id WHERE note.author_id IS DISTINCT FROM imported.author_id)
FROM "public".import_placeholder_user_details AS detail
LEFT JOIN "public".users_ghost_user_migrations AS queued ON queued.user_id = detail.placeholder_user_id
WHERE detail.placeholder_user_id = ANY ($1)
