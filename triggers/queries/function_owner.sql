-- The owner of the function $2 in the schema $1 of Sexton's own tables.
SELECT pg_catalog.pg_get_userbyid(p.proowner)::pg_catalog.text
FROM pg_catalog.pg_proc AS p
WHERE p.oid = pg_catalog.to_regprocedure(pg_catalog.format('%I.%I()', $1::pg_catalog.text, $2::pg_catalog.text));
