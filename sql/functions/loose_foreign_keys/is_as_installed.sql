-- Reports whether a tracked table that is not a partition, and the columns of its key,
-- have the same names as when the trigger was installed.
--
-- The function is declared IMMUTABLE, although it is at best STABLE. So Postgres computes
-- it once per session, when it plans the expression in a tracking function, and not at
-- each DELETE. Because of the regclass constant, Postgres plans the expression again
-- after each change of the table, even if the change is rolled back. It plans all
-- expressions again after a schema is renamed. A DELETE locks its table before its
-- trigger runs, so the table cannot change after that.
--
-- The function may call only functions that read the session's caches, which have the
-- committed state. A query in a REPEATABLE READ transaction could see an earlier catalog,
-- and Postgres would keep its result for the session.
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

COMMENT ON FUNCTION "sexton".is_as_installed(regclass, text, smallint[], text[]) IS 'Sexton: reports whether a tracked table and its key have the same names as at the installation';
