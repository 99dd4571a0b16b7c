SELECT class.oid, greatest(class.reltuples, 0)::pg_catalog.int8, pg_catalog.pg_relation_size(class.oid)
FROM pg_catalog.pg_class AS class
WHERE class.oid = ANY ($1);
