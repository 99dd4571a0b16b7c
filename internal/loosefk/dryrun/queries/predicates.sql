-- To show a predicate is to lock its table.
SELECT index.indrelid, class.relname, pg_catalog.pg_get_expr(index.indpred, index.indrelid)
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid
WHERE index.indrelid = ANY ($1) AND index.indpred IS NOT NULL
