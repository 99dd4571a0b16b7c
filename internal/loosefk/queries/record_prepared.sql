UPDATE "sexton".swept AS swept
SET prepared = ARRAY({prepared})
WHERE swept.database OPERATOR(pg_catalog.=) $1 AND swept.id OPERATOR(pg_catalog.=) ANY ($2::bigint[]) AND swept.prepared IS NULL
