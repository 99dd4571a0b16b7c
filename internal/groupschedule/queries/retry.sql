UPDATE "sexton".group_deletion_failures AS failure
SET retry_at = pg_catalog.statement_timestamp(), updated_at = pg_catalog.clock_timestamp()
WHERE failure.group_id = $1 AND failure.retry_at > pg_catalog.statement_timestamp()
