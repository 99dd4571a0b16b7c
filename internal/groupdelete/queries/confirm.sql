-- Fails with SX003 if the record of the destruction $1 does not exist. Otherwise the
-- record cannot be deleted until the commit.
SELECT "sexton".require(pg_catalog.count(*) OPERATOR(pg_catalog.>) 0) FROM (
    SELECT FROM "sexton".group_destructions AS begun WHERE begun.group_id OPERATOR(pg_catalog.=) $1 FOR KEY SHARE
) AS begun
