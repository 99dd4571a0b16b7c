UPDATE "sexton".group_deletion_failures AS failure
SET retry_at = pg_catalog.statement_timestamp(), updated_at = pg_catalog.clock_timestamp()
WHERE failure.group_id OPERATOR(pg_catalog.=) $1 AND failure.retry_at OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp()
