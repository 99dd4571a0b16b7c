-- Returns the expected triggers of every table, one row per trigger. $1 has the OIDs of
-- the roots, $2 their recorded names and $3 their key columns (texts of arrays), in the
-- same order. $4 is the truncate policy. The query reads partitions from pg_inherits,
-- because pg_partition_tree waits for locks of other sessions.
WITH RECURSIVE roots AS (
    SELECT *
    FROM unnest($1::pg_catalog.oid[], $2::pg_catalog.text[], $3::pg_catalog.text[])
        WITH ORDINALITY AS r (root, recorded, key_columns, ordinal)
),
tables AS (
    SELECT r.*, r.root AS relid, 0 AS level FROM roots AS r
    UNION ALL
    SELECT t.root, t.recorded, t.key_columns, t.ordinal, below.inhrelid, t.level + 1
    FROM tables AS t
    JOIN pg_catalog.pg_inherits AS below ON below.inhparent = t.relid
    JOIN pg_catalog.pg_class AS part ON part.oid = below.inhrelid AND part.relispartition
),
-- Partitions may have other attribute numbers than their root, because of another order
-- of columns or dropped columns.
keyed AS (
    SELECT t.*, k.numbers, k.types,
        pg_catalog.concat((SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c), '/', t.relid) AS about
    FROM tables AS t
    CROSS JOIN LATERAL (
        SELECT pg_catalog.array_agg(a.attnum ORDER BY c.place)::pg_catalog.text AS numbers, pg_catalog.string_agg(a.atttypid::pg_catalog.text, ',' ORDER BY c.place) AS types
        FROM pg_catalog.unnest(t.key_columns::pg_catalog.name[]) WITH ORDINALITY AS c (name, place)
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = t.relid AND a.attname = c.name AND a.attnum > 0
    ) AS k
),
wanted AS (
    SELECT t.ordinal, t.level, t.relid, NULL::pg_catalog.text AS schema_name, NULL::pg_catalog.text AS table_name,
        e.name, e.type_bits, e.old_table, NULL::pg_catalog.text AS new_table, NULL::pg_catalog.text AS condition,
        e.arguments
    FROM keyed AS t
    CROSS JOIN LATERAL (VALUES
        -- tgtype is 8 for AFTER DELETE FOR EACH STATEMENT and 34 for BEFORE TRUNCATE FOR
        -- EACH STATEMENT.
        ('sexton_track', 8, 'sexton_deleted', ARRAY[t.recorded, t.numbers, t.types, t.about]),
        ('sexton_truncate', 34, NULL, ARRAY[t.recorded, $4::pg_catalog.text])
    ) AS e (name, type_bits, old_table, arguments)
)
