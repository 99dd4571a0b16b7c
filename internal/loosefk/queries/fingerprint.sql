WITH RECURSIVE tree AS (
    SELECT pg_catalog.unnest($1::pg_catalog.oid[]) AS oid
    UNION
    SELECT inherits.inhrelid
    FROM tree
    JOIN pg_catalog.pg_inherits AS inherits ON inherits.inhparent = tree.oid
)
SELECT coalesce(pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat_ws(' ', class.oid, class.xmin, hook.tgfoid, columns.names, indexes.oids),
    ',' ORDER BY class.oid)), '')
FROM tree
JOIN pg_catalog.pg_class AS class ON class.oid = tree.oid
LEFT JOIN pg_catalog.pg_trigger AS hook ON hook.tgrelid = class.oid AND hook.tgname = 'sexton_track' AND NOT hook.tgisinternal
LEFT JOIN LATERAL (
    SELECT pg_catalog.string_agg(attribute.attname, ',' ORDER BY attribute.attnum) AS names
    FROM pg_catalog.pg_attribute AS attribute
    WHERE attribute.attrelid = class.oid AND attribute.attnum > 0
) AS columns ON class.oid = ANY ($1)
LEFT JOIN LATERAL (
    SELECT pg_catalog.string_agg(index.indexrelid::pg_catalog.text, ',' ORDER BY index.indexrelid) AS oids
    FROM pg_catalog.pg_index AS index
    WHERE index.indrelid = class.oid AND index.indisvalid
) AS indexes ON class.oid = ANY ($1)
