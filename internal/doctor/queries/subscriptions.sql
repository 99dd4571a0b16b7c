-- A worker that applies changes fires no statement triggers, and the tracking triggers are such.
WITH RECURSIVE part AS (
    SELECT class.oid
    FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])) AS parent (schema_name, table_name)
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = parent.schema_name
    JOIN pg_catalog.pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = parent.table_name
    UNION
    SELECT below.inhrelid
    FROM part
    JOIN pg_catalog.pg_inherits AS below ON below.inhparent = part.oid
    JOIN pg_catalog.pg_class AS class ON class.oid = below.inhrelid AND class.relispartition
)
SELECT DISTINCT subscription.subname::pg_catalog.text, relation.srrelid::pg_catalog.regclass::pg_catalog.text
FROM part
JOIN pg_catalog.pg_subscription_rel AS relation ON relation.srrelid = part.oid
JOIN pg_catalog.pg_subscription AS subscription ON subscription.oid = relation.srsubid
ORDER BY 1, 2;
