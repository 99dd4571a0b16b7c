-- Returns the relations with the OIDs $1, with their roots and their rules for DELETE.
SELECT class.oid, namespace.nspname, class.relname, pg_catalog.format('%I.%I', namespace.nspname, class.relname), class.relkind::pg_catalog.text,
    CASE WHEN class.relispartition THEN coalesce(pg_catalog.pg_partition_root(class.oid)::pg_catalog.oid, class.oid) ELSE class.oid END,
    ARRAY(SELECT rule.rulename::pg_catalog.text FROM pg_catalog.pg_rewrite AS rule WHERE rule.ev_class = class.oid AND rule.ev_type = '4' AND class.relkind <> 'p')
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE class.oid = ANY ($1);
