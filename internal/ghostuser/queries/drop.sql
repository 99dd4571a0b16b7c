-- Takes a user out of the queue that exists no more.
DELETE FROM "public".users_ghost_user_migrations AS job WHERE job.id OPERATOR(pg_catalog.=) $1
