-- The users that may likely be deleted. Placeholders are another job's.
SELECT count(*), coalesce(min(leaving.id), 0), coalesce(max(leaving.id), 0)
FROM "public".users AS leaving
WHERE leaving.user_type IN (0, 6, 13) AND leaving.id <> $1
AND NOT EXISTS (SELECT FROM "public".users_ghost_user_migrations AS job WHERE job.user_id = leaving.id)
