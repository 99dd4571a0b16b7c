SELECT EXISTS (SELECT FROM "public".users_ghost_user_migrations AS queued WHERE queued.user_id OPERATOR(pg_catalog.=) $1)
