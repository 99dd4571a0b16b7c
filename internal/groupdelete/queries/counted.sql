-- Counts deleted rows for the group $3.
counted AS (
	UPDATE "sexton".group_destructions AS progress SET done = progress.done OPERATOR(pg_catalog.+) total.rows, updated_at = pg_catalog.clock_timestamp()
	FROM total WHERE progress.group_id OPERATOR(pg_catalog.=) $3 AND total.rows OPERATOR(pg_catalog.>) 0
)
