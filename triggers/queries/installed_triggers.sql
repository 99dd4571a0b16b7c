-- Returns the triggers of the CTE wanted together with the installed triggers, in the
-- order of wanted. oid is 0 if the table does not exist. condition is the expected
-- condition of the trigger. It is '' for any condition and NULL for no condition.
--
-- The arguments are compared here, because pg_trigger has them in the encoding of the
-- database, each with a final zero byte. The query prints a condition without its table,
-- which the condition does not use, so that no table is locked.
SELECT
    w.ordinal::int - 1 AS position,
    coalesce(c.oid, 0) AS oid,
    coalesce(n.nspname::pg_catalog.text, w.schema_name) AS schema_name,
    coalesce(c.relname::pg_catalog.text, w.table_name) AS table_name,
    pg_catalog.format('%I.%I', coalesce(n.nspname, w.schema_name), coalesce(c.relname, w.table_name)) AS display,
    coalesce(CASE WHEN c.relispartition AND c.relkind <> 'f' THEN 'partition' ELSE c.relkind::pg_catalog.text END, '') AS relkind,
    coalesce(pg_catalog.pg_has_role(c.relowner, 'USAGE'), false) AS owned,
    coalesce(pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text, '') AS owner,
    coalesce(pg_catalog.has_table_privilege(c.oid, 'TRIGGER'), false) AS may_trigger,
    w.name,
    tg.oid IS NOT NULL AS present,
    coalesce(tg.tgenabled::pg_catalog.text, '') AS enabled,
    coalesce(fn.nspname::pg_catalog.text, '') AS function_schema,
    coalesce(p.proname::pg_catalog.text, '') AS function_name,
    coalesce(pg_catalog.obj_description(p.oid, 'pg_proc') ~ E'\\(bigint\\)(, and keeps the rows)?$', false) AS installed_integer,
    w.arguments,
    coalesce(tg.tgtype = w.type_bits
        AND (tg.tgqual IS NULL OR w.condition IS NOT NULL)
        AND tg.tgoldtable IS NOT DISTINCT FROM w.old_table::pg_catalog.name
        AND tg.tgnewtable IS NOT DISTINCT FROM w.new_table::pg_catalog.name, false) AS event_matches,
    coalesce(tg.tgargs = coalesce((
        SELECT pg_catalog.string_agg(pg_catalog.convert_to(a.arg, pg_catalog.getdatabaseencoding()) || E'\\x00'::pg_catalog.bytea, ''::pg_catalog.bytea ORDER BY a.ordinal)
        FROM pg_catalog.unnest(w.arguments) WITH ORDINALITY AS a (arg, ordinal)), '')
        AND CASE WHEN w.condition <> '' THEN pg_catalog.pg_get_expr(tg.tgqual, 0) = w.condition ELSE w.condition IS NULL OR tg.tgqual IS NOT NULL END,
        false) AS args_match
FROM wanted AS w
LEFT JOIN pg_catalog.pg_class AS c ON c.oid = w.relid
LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_trigger AS tg ON tg.tgrelid = c.oid AND tg.tgname = w.name AND NOT tg.tgisinternal
LEFT JOIN pg_catalog.pg_proc AS p ON p.oid = tg.tgfoid
LEFT JOIN pg_catalog.pg_namespace AS fn ON fn.oid = p.pronamespace
WHERE c.oid IS NOT NULL OR w.table_name IS NOT NULL
ORDER BY w.ordinal, w.level, display, w.name;
