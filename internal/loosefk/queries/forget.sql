-- Deletes the keys of removed tombstones of database $1 that were stored more than a week
-- ago. No definition names their parent: otherwise they would have been rechecked.
DELETE FROM "sexton".swept AS removed
WHERE removed.database = $1
  AND removed.swept_at < (pg_catalog.clock_timestamp() - interval '7 days')
  AND removed.id < (SELECT pg_catalog.min(old.id) + 1000 FROM "sexton".swept AS old WHERE old.database = $1)
