-- Deletes the removed keys of database $1 that are older than a week. No definition names their parent: otherwise they would
-- have been rechecked.
DELETE FROM "sexton".swept AS removed
WHERE removed.database = $1
  AND removed.swept_at < (pg_catalog.clock_timestamp() - interval '7 days')
  AND removed.id < (SELECT pg_catalog.min(old.id) + 1000 FROM "sexton".swept AS old WHERE old.database = $1)
