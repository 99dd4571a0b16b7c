counted AS (
	UPDATE "public".users_ghost_user_migrations AS job
	SET deleted_rows = job.deleted_rows OPERATOR(pg_catalog.+) total.rows, updated_at = pg_catalog.clock_timestamp()
	FROM total WHERE job.id OPERATOR(pg_catalog.=) $3 AND total.rows OPERATOR(pg_catalog.>) 0
)
