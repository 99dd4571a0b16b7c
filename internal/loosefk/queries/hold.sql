UPDATE "sexton".swept AS swept
SET not_before = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3::pg_catalog.float8)
WHERE swept.database OPERATOR(pg_catalog.=) $1
  AND (swept.id OPERATOR(pg_catalog.=) ANY ($2::bigint[])
      OR swept.parent OPERATOR(pg_catalog.=) $4 AND (swept.not_before IS NULL OR swept.not_before OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()))
