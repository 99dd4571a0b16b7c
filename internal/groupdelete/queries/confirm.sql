-- Locks the record of the destruction $1. Fails with SX003 if it does not exist.
SELECT "sexton".require(pg_catalog.count(*) OPERATOR(pg_catalog.>) 0) FROM (
    SELECT FROM "sexton".group_destructions AS begun WHERE begun.group_id OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE
) AS begun
