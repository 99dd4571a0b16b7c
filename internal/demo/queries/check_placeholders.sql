-- What became of the placeholders $1, and imported notes that have lost their author to the ghost user although they should have kept it. A
-- placeholder that waited for tombstones may enter the queue of the users to be deleted when nothing else is left to do.
WITH decided AS (
    SELECT queued.user_id IS NOT NULL AS queued, detail.last_error IS NOT NULL AS kept
    FROM "public".import_placeholder_user_details AS detail
    LEFT JOIN "public".users_ghost_user_migrations AS queued ON queued.user_id = detail.placeholder_user_id
    WHERE detail.placeholder_user_id = ANY ($1)
)
SELECT 'gone', 'of them are gone', count(*), false
FROM unnest($1::bigint[]) AS gone (id) WHERE NOT EXISTS (SELECT FROM "public".users WHERE users.id = gone.id)
UNION ALL
SELECT 'queued', 'are in the queue of the users to be deleted', count(*), false FROM decided WHERE decided.queued
UNION ALL
SELECT 'kept', 'kept, with the reason', count(*), false FROM decided WHERE NOT decided.queued AND decided.kept
UNION ALL
SELECT 'undecided', 'are none of these', count(*), true FROM decided WHERE NOT decided.queued AND NOT decided.kept
UNION ALL
SELECT 'authors_lost', 'imported notes have lost their author', count(*), true
FROM demo.imported JOIN "public".notes AS note ON note.id = imported.id WHERE note.author_id IS DISTINCT FROM imported.author_id
