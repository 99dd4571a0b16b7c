-- Every table that needs triggers, twice: once per trigger, with what is installed there now.
-- In parallel: $1 roots (oid), $2 recorded names, $3 key columns (texts of arrays); $4 truncate policy.
--
-- The arguments are compared here, not by the caller: pg_trigger keeps them in the encoding of the
-- database, each ended by a zero byte.
WITH roots AS (
    SELECT *
    FROM unnest($1::oid[], $2::text[], $3::text[])
        WITH ORDINALITY AS r (root, recorded, key_columns, ordinal)
),
tables AS (
    SELECT r.*, r.root AS relid, 0 AS level FROM roots AS r
    UNION ALL
    SELECT r.*, t.relid::oid, t.level
    FROM roots AS r
    CROSS JOIN LATERAL pg_partition_tree(r.root::regclass) AS t
    WHERE t.relid::oid <> r.root
),
-- Partitions may have the columns in another order, and dropped ones before them.
keyed AS (
    SELECT t.*, k.numbers, k.types,
        concat((SELECT c.system_identifier FROM pg_control_system() AS c), '/', t.relid) AS about
    FROM tables AS t
    CROSS JOIN LATERAL (
        SELECT array_agg(a.attnum ORDER BY c.place)::text AS numbers, string_agg(a.atttypid::text, ',' ORDER BY c.place) AS types
        FROM unnest(t.key_columns::name[]) WITH ORDINALITY AS c (name, place)
        JOIN pg_attribute AS a ON a.attrelid = t.relid AND a.attname = c.name AND a.attnum > 0
    ) AS k
),
expected AS (
    SELECT t.*, 'sexton_track' AS name, 'AFTER DELETE' AS event, 8 AS type_bits, 'sexton_deleted' AS old_table,
        ARRAY[t.recorded, t.numbers, t.types, t.about] AS args
    FROM keyed AS t
    UNION ALL
    SELECT t.*, 'sexton_truncate', 'BEFORE TRUNCATE', 34, NULL,
        ARRAY[t.recorded, t.numbers, t.types, t.about, t.key_columns, $4::text]
    FROM keyed AS t
)
SELECT
    e.ordinal::int - 1 AS parent,
    c.oid,
    n.nspname::text AS schema_name,
    c.relname::text AS table_name,
    format('%I.%I', n.nspname, c.relname) AS display,
    c.relkind::text AS relkind,
    pg_has_role(c.relowner, 'USAGE') AS owned,
    pg_get_userbyid(c.relowner)::text AS owner,
    has_table_privilege(c.oid, 'TRIGGER') AS may_trigger,
    e.name,
    tg.oid IS NOT NULL AS present,
    coalesce(tg.tgenabled::text, '') AS enabled,
    coalesce(fn.nspname::text, '') AS function_schema,
    coalesce(p.proname::text, '') AS function_name,
    coalesce(obj_description(p.oid, 'pg_proc') LIKE '%(bigint)', false) AS installed_integer,
    e.args AS arguments,
    coalesce(tg.tgtype = e.type_bits
        AND tg.tgqual IS NULL
        AND tg.tgoldtable IS NOT DISTINCT FROM e.old_table::name
        AND tg.tgnewtable IS NULL, false) AS event_matches,
    coalesce(tg.tgargs = (
        SELECT string_agg(convert_to(a.arg, getdatabaseencoding()) || '\x00'::bytea, ''::bytea ORDER BY a.ordinal)
        FROM unnest(e.args) WITH ORDINALITY AS a (arg, ordinal)), false) AS args_match
FROM expected AS e
JOIN pg_class AS c ON c.oid = e.relid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_trigger AS tg ON tg.tgrelid = c.oid AND tg.tgname = e.name AND NOT tg.tgisinternal
LEFT JOIN pg_proc AS p ON p.oid = tg.tgfoid
LEFT JOIN pg_namespace AS fn ON fn.oid = p.pronamespace
ORDER BY e.ordinal, e.level, display, e.name;
