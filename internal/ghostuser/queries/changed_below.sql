counted AS (
	UPDATE "public".users_ghost_user_migrations AS job
	SET nullified_rows = job.nullified_rows OPERATOR(pg_catalog.+) (SELECT pg_catalog.count(*) FROM changed), updated_at = pg_catalog.clock_timestamp()
	WHERE job.id OPERATOR(pg_catalog.=) $3 AND EXISTS (SELECT FROM changed)
)
