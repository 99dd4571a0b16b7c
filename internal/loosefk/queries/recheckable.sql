-- Reads rows of database $1 behind id $2, oldest first: what they are about, for how many seconds they have been waited for,
-- whether both horizons have passed them, whether the first one has (horizon $4, or the kept one) while prepared transactions are
-- there, which must be recorded then, and whether transactions in other databases alone hold the second one back (parents $5 and $6, horizon $7).
SELECT oldest.id, oldest.parent, coalesce(oldest.parent_oid, 0), oldest.integer_keys, oldest.text_keys,
       pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.-) pg_catalog.date_part('epoch', oldest.swept_at) AS waited,
       passed.here AND passed.remote AS open,
       oldest.prepared IS NULL AND oldest.swept_at OPERATOR(pg_catalog.<) present.horizon
           AND pg_catalog.cardinality(present.transactions) OPERATOR(pg_catalog.<>) 0 AS unrecorded,
       passed.here AND NOT passed.remote AS held
FROM (
    SELECT swept.*
    FROM "sexton".swept AS swept
    WHERE swept.database OPERATOR(pg_catalog.=) $1
      AND swept.id OPERATOR(pg_catalog.>) $2
      AND (swept.not_before IS NULL OR swept.not_before OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp())
    ORDER BY swept.id
    LIMIT $3
) AS oldest
CROSS JOIN (
    SELECT ARRAY(SELECT prepared.transaction FROM pg_catalog.pg_prepared_xacts AS prepared
WHERE prepared.database OPERATOR(pg_catalog.=) pg_catalog.current_database()) AS transactions, coalesce(
        $4::pg_catalog.timestamptz,
        CASE WHEN pg_catalog.current_setting('sexton.horizon', true) OPERATOR(pg_catalog.<>) ''
            THEN pg_catalog.to_timestamp(pg_catalog.current_setting('sexton.horizon')::pg_catalog.float8) END,
        '-infinity'
    ) AS horizon
) AS present
CROSS JOIN LATERAL (
    SELECT CASE WHEN oldest.prepared IS NULL THEN oldest.swept_at OPERATOR(pg_catalog.<) present.horizon
            AND pg_catalog.cardinality(present.transactions) OPERATOR(pg_catalog.=) 0
                ELSE NOT oldest.prepared OPERATOR(pg_catalog.&&) present.transactions END AS here,
           NOT (oldest.parent OPERATOR(pg_catalog.=) ANY ($5::pg_catalog.text[])
                   OR coalesce(oldest.parent_oid OPERATOR(pg_catalog.=) ANY ($6::pg_catalog.oid[]), false))
               OR oldest.swept_at OPERATOR(pg_catalog.<) $7::pg_catalog.timestamptz AS remote
) AS passed
ORDER BY oldest.id
