-- The owner of the function $2 in the schema $1 of Sexton's own tables, and whether the current role may add to the registry there.
SELECT pg_catalog.pg_get_userbyid(p.proowner)::pg_catalog.text,
    pg_catalog.has_table_privilege(pg_catalog.format('%I.objects', $1::pg_catalog.text), 'INSERT')
FROM pg_catalog.pg_proc AS p
WHERE p.oid = pg_catalog.to_regprocedure(pg_catalog.format('%I.%I()', $1::pg_catalog.text, $2::pg_catalog.text));
