-- Returns the five oldest prepared transactions of this database that are older than $1
-- seconds.
SELECT pg_catalog.format('%L', prepared.gid), prepared.owner::pg_catalog.text, prepared.prepared
FROM pg_catalog.pg_prepared_xacts AS prepared
WHERE prepared.database = pg_catalog.current_database()
  AND prepared.prepared < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1)
ORDER BY prepared.prepared
LIMIT 5;
