-- Every table that needs triggers, twice: once per trigger, with what is installed there now.
-- In parallel: $1 roots (oid), $2 recorded names, $3 key columns (texts of arrays); $4 truncate policy.
--
-- The arguments are compared here, not by the caller: pg_trigger keeps them in the encoding of the
-- database, each ended by a zero byte. Partitions come from pg_inherits: pg_partition_tree waits for the locks of other sessions.
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
-- Partitions may have the columns in another order, and dropped ones before them.
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
expected AS (
    SELECT t.*, 'sexton_track' AS name, 'AFTER DELETE' AS event, 8 AS type_bits, 'sexton_deleted' AS old_table,
        ARRAY[t.recorded, t.numbers, t.types, t.about] AS args
    FROM keyed AS t
    UNION ALL
    SELECT t.*, 'sexton_truncate', 'BEFORE TRUNCATE', 34, NULL,
        ARRAY[t.recorded, t.numbers, t.types, t.about, t.key_columns, $4::pg_catalog.text]
    FROM keyed AS t
)
SELECT
    e.ordinal::int - 1 AS parent,
    c.oid,
    n.nspname::pg_catalog.text AS schema_name,
    c.relname::pg_catalog.text AS table_name,
    pg_catalog.format('%I.%I', n.nspname, c.relname) AS display,
    c.relkind::pg_catalog.text AS relkind,
    pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned,
    pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text AS owner,
    pg_catalog.has_table_privilege(c.oid, 'TRIGGER') AS may_trigger,
    e.name,
    tg.oid IS NOT NULL AS present,
    coalesce(tg.tgenabled::pg_catalog.text, '') AS enabled,
    coalesce(fn.nspname::pg_catalog.text, '') AS function_schema,
    coalesce(p.proname::pg_catalog.text, '') AS function_name,
    coalesce(pg_catalog.obj_description(p.oid, 'pg_proc') OPERATOR(pg_catalog.~) '\(bigint\)(, and keeps the rows)?$', false) AS installed_integer,
    e.args AS arguments,
    coalesce(tg.tgtype = e.type_bits
        AND tg.tgqual IS NULL
        AND tg.tgoldtable IS NOT DISTINCT FROM e.old_table::pg_catalog.name
        AND tg.tgnewtable IS NULL, false) AS event_matches,
    coalesce(tg.tgargs = (
        SELECT pg_catalog.string_agg(pg_catalog.convert_to(a.arg, pg_catalog.getdatabaseencoding()) || '\x00'::pg_catalog.bytea, ''::pg_catalog.bytea ORDER BY a.ordinal)
        FROM pg_catalog.unnest(e.args) WITH ORDINALITY AS a (arg, ordinal)), false) AS args_match
FROM expected AS e
JOIN pg_catalog.pg_class AS c ON c.oid = e.relid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_trigger AS tg ON tg.tgrelid = c.oid AND tg.tgname = e.name AND NOT tg.tgisinternal
LEFT JOIN pg_catalog.pg_proc AS p ON p.oid = tg.tgfoid
LEFT JOIN pg_catalog.pg_namespace AS fn ON fn.oid = p.pronamespace
ORDER BY e.ordinal, e.level, display, e.name;
