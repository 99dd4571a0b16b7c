INSERT INTO "sexton".placeholder_rules AS rules (max_attempts, retry_seconds)
SELECT $1::integer, $2::pg_catalog.float8
WHERE NOT EXISTS (SELECT FROM "sexton".placeholder_rules AS saved
    WHERE saved.max_attempts = $1 AND saved.retry_seconds = $2)
ON CONFLICT (one) DO UPDATE
SET max_attempts = excluded.max_attempts, retry_seconds = excluded.retry_seconds, updated_at = pg_catalog.clock_timestamp()
