SELECT leaving.id
FROM "public".users AS leaving
WHERE leaving.user_type IN (0, 6, 13) AND leaving.id <> $1
AND NOT EXISTS (SELECT FROM "public".users_ghost_user_migrations AS job WHERE job.user_id = leaving.id)
AND leaving.id <> ALL ($2::bigint[]) AND leaving.id >= $3
ORDER BY leaving.id LIMIT $4
