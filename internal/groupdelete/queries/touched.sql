-- Records for the run's group $3 that a row was deleted or changed. The deletion of the
-- group cannot be cancelled after that.
touched AS (
	UPDATE "sexton".group_destructions AS progress SET touched = true
	WHERE progress.group_id OPERATOR(pg_catalog.=) $3 AND NOT progress.touched AND EXISTS (SELECT FROM {changed})
)
