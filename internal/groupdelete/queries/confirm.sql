-- Locks the record of the destruction $1. It fails with a division by zero where there is none any more.
SELECT 1 OPERATOR(pg_catalog./) pg_catalog.count(*)::integer FROM (
    SELECT FROM "sexton".group_destructions AS begun WHERE begun.group_id OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE
) AS begun
