-- Returns the leaves of the relations $1: the relations themselves, or their partitions
-- that are not partitioned, with the rules for DELETE.
WITH RECURSIVE tree AS (
    SELECT root.oid AS root, root.oid AS relid FROM pg_catalog.unnest($1::pg_catalog.oid[]) AS root (oid)
    UNION ALL
    SELECT tree.root, below.inhrelid FROM tree JOIN pg_catalog.pg_inherits AS below ON below.inhparent = tree.relid
)
SELECT tree.root, leaf.oid, namespace.nspname, leaf.relname, leaf.relkind::pg_catalog.text,
    ARRAY(SELECT rule.rulename::pg_catalog.text FROM pg_catalog.pg_rewrite AS rule WHERE rule.ev_class = leaf.oid AND rule.ev_type = '4')
FROM tree
JOIN pg_catalog.pg_class AS leaf ON leaf.oid = tree.relid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = leaf.relnamespace
WHERE leaf.relkind <> 'p'
ORDER BY tree.root, leaf.oid;
