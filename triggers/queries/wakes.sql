-- The tables whose rows wake a worker, with the triggers that are installed there now. In parallel:
-- $1 schemas, $2 tables, $3 job kinds, $4 and $5 keys of the awake locks, $6 conditions. One row per trigger, of which a
-- table with a condition has two, in the order given; oid is 0 where there is no such table. The columns are those of
-- tables.sql.
SELECT
    w.ordinal::int - 1 AS wake,
    coalesce(c.oid, 0) AS oid,
    w.schema_name,
    w.table_name,
    pg_catalog.format('%I.%I', w.schema_name, w.table_name) AS display,
    coalesce(CASE WHEN c.relispartition THEN 'partition' ELSE c.relkind::pg_catalog.text END, '') AS relkind,
    coalesce(pg_catalog.pg_has_role(c.relowner, 'USAGE'), false) AS owned,
    coalesce(pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text, '') AS owner,
    coalesce(pg_catalog.has_table_privilege(c.oid, 'TRIGGER'), false) AS may_trigger,
    e.name,
    tg.oid IS NOT NULL AS present,
    coalesce(tg.tgenabled::pg_catalog.text, '') AS enabled,
    coalesce(fn.nspname::pg_catalog.text, '') AS function_schema,
    coalesce(p.proname::pg_catalog.text, '') AS function_name,
    false AS installed_integer,
    '{}'::pg_catalog.text[] AS arguments,
    coalesce(tg.tgtype = e.type_bits
        AND tg.tgoldtable IS NULL
        AND tg.tgnewtable IS NOT DISTINCT FROM CASE w.due WHEN '' THEN 'sexton_added'::pg_catalog.name END, false) AS event_matches,
    -- The keys are those of the condition, written as the server shows it. A condition on rows is known by the second
    -- argument instead: the server shows it in words of its own. Without the table, which the condition does not speak of, nothing is locked.
    coalesce(CASE WHEN w.due <> '' THEN
        tg.tgargs = pg_catalog.convert_to(w.kind, pg_catalog.getdatabaseencoding()) || '\x00'::pg_catalog.bytea || pg_catalog.convert_to(w.due, pg_catalog.getdatabaseencoding()) || '\x00'::pg_catalog.bytea
        AND tg.tgqual IS NOT NULL
    ELSE
        tg.tgargs = pg_catalog.convert_to(w.kind, pg_catalog.getdatabaseencoding()) || '\x00'::pg_catalog.bytea
        AND pg_catalog.pg_get_expr(tg.tgqual, 0) = pg_catalog.format(
            '(pg_try_advisory_lock_shared(%1$s, %2$s) AND pg_advisory_unlock_shared(%1$s, %2$s))',
            CASE WHEN w.key_1 < 0 THEN pg_catalog.format('%L::integer', w.key_1) ELSE w.key_1::pg_catalog.text END,
            CASE WHEN w.key_2 < 0 THEN pg_catalog.format('%L::integer', w.key_2) ELSE w.key_2::pg_catalog.text END)
    END, false) AS args_match
FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.text[], $4::int[], $5::int[], $6::pg_catalog.text[])
    WITH ORDINALITY AS w (schema_name, table_name, kind, key_1, key_2, due, ordinal)
-- 4: AFTER INSERT FOR EACH STATEMENT; 5: AFTER INSERT FOR EACH ROW; 17: AFTER UPDATE FOR EACH ROW
JOIN (VALUES ('sexton_wake', 4, false), ('sexton_wake', 5, true), ('sexton_wake_update', 17, true)) AS e (name, type_bits, by_row)
    ON e.by_row = (w.due <> '')
LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema_name
LEFT JOIN pg_catalog.pg_class AS c
    ON c.relnamespace = n.oid AND c.relname = w.table_name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
LEFT JOIN pg_catalog.pg_trigger AS tg ON tg.tgrelid = c.oid AND tg.tgname = e.name AND NOT tg.tgisinternal
LEFT JOIN pg_catalog.pg_proc AS p ON p.oid = tg.tgfoid
LEFT JOIN pg_catalog.pg_namespace AS fn ON fn.oid = p.pronamespace
ORDER BY w.ordinal, e.type_bits;
