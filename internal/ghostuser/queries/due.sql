FROM "public".users_ghost_user_migrations AS job WHERE job.consume_after OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
