-- Returns the triggers that keep the effects of native foreign keys. $1 has the OIDs of
-- tables and $2, in the same order, the names of triggers.
WITH wanted AS (
    SELECT k.ordinal, 0 AS level, k.relid, NULL::pg_catalog.text AS schema_name, NULL::pg_catalog.text AS table_name,
        k.name, e.type_bits, 'sexton_deleted' AS old_table, e.new_table, '(pg_trigger_depth() > 0)' AS condition, '{}'::pg_catalog.text[] AS arguments
    FROM unnest($1::pg_catalog.oid[], $2::pg_catalog.text[]) WITH ORDINALITY AS k (relid, name, ordinal)
    -- tgtype is 8 for AFTER DELETE FOR EACH STATEMENT and 16 for AFTER UPDATE FOR EACH
    -- STATEMENT.
    JOIN (VALUES ('sexton_keep', 8, NULL), ('sexton_keep_update', 16, 'sexton_changed')) AS e (name, type_bits, new_table) ON e.name = k.name
)
