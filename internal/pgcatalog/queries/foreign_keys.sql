-- Returns the foreign keys of the database. The query reads confdelsetcols (since
-- Postgres 15), conperiod and conenforced (since 18) through to_jsonb, because older
-- versions lack these columns. It leaves out keys that are not enforced, because Postgres
-- ignores them when a row is deleted.
SELECT key.conname, key.conrelid, key.confrelid, key.confdeltype::pg_catalog.text, names.columns, names.targets,
    coalesce((
        SELECT pg_catalog.array_agg(attribute.attname::pg_catalog.text ORDER BY attribute.attnum)
        FROM pg_catalog.jsonb_array_elements_text(
            nullif(whole.key -> 'confdelsetcols', 'null'::pg_catalog.jsonb)) AS listed (number)
        JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = listed.number::smallint
    ), names.columns),
    coalesce((whole.key -> 'conperiod')::pg_catalog.bool, false)
FROM pg_catalog.pg_constraint AS key
CROSS JOIN LATERAL (SELECT pg_catalog.to_jsonb(key) OFFSET 0) AS whole (key)
CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(source.attname::pg_catalog.text ORDER BY pair.position) AS columns,
        pg_catalog.array_agg(target.attname::pg_catalog.text ORDER BY pair.position) AS targets
    FROM unnest(key.conkey, key.confkey) WITH ORDINALITY AS pair (source, target, position)
    JOIN pg_catalog.pg_attribute AS source ON source.attrelid = key.conrelid AND source.attnum = pair.source
    JOIN pg_catalog.pg_attribute AS target ON target.attrelid = key.confrelid AND target.attnum = pair.target
) AS names
WHERE key.contype = 'f' AND key.conparentid = 0 AND coalesce((whole.key -> 'conenforced')::pg_catalog.bool, true)
ORDER BY key.conrelid::pg_catalog.regclass::pg_catalog.text, key.conkey, key.conname;
