DELETE FROM "sexton".swept AS swept
WHERE swept.database OPERATOR(pg_catalog.=) $1 AND swept.id OPERATOR(pg_catalog.=) ANY ($2::bigint[])
