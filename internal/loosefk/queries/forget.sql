-- Forgets removed keys of database $1 whose parent no definition has named for a week.
DELETE FROM "sexton".swept AS removed
WHERE removed.database OPERATOR(pg_catalog.=) $1
  AND removed.swept_at OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) interval '7 days')
  AND removed.id OPERATOR(pg_catalog.<) (SELECT pg_catalog.min(old.id) OPERATOR(pg_catalog.+) 1000 FROM "sexton".swept AS old WHERE old.database OPERATOR(pg_catalog.=) $1)
