-- Whether a tracked table, which is no partition, and its key's columns are called as they were when its trigger was installed.
--
-- It is STABLE at best, and declared IMMUTABLE: so the tracking functions have it computed once per session, while an expression is planned, and
-- no DELETE pays for it. The constant of type regclass has Postgres plan the expression again after each change of the table, also after one
-- that is rolled back, and all of them after a change of a schema's name. A DELETE locks its table before its trigger runs, so none comes later.
--
-- Only functions that read caches of the session serve here: they know what is committed, whereas a query in a transaction of REPEATABLE READ
-- may see an earlier catalogue, and its answer would stay.
CREATE OR REPLACE FUNCTION "sexton".is_as_installed(relation regclass, recorded text, key_numbers smallint[], key_names text[])
RETURNS boolean
LANGUAGE sql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = 'off'
AS $sexton$
    SELECT relation::pg_catalog.text = recorded
        AND coalesce(pg_catalog.pg_partition_root(relation), relation) = relation
        AND pg_catalog.bool_and(coalesce(
            (pg_catalog.pg_identify_object_as_address('pg_catalog.pg_class'::pg_catalog.regclass, relation, k.number)).object_names[3] = k.name, false))
    FROM ROWS FROM (pg_catalog.unnest(key_numbers), pg_catalog.unnest(key_names)) AS k (number, name);
$sexton$;

COMMENT ON FUNCTION "sexton".is_as_installed(regclass, text, smallint[], text[]) IS 'Sexton: whether a tracked table is called as at the installation';
