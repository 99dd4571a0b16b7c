-- The tables on which triggers keep what native foreign keys do, with what is installed there now: $1 tables (oids) and $2 names of triggers, in
-- parallel. The columns are those of tables.sql.
SELECT
    w.ordinal::int - 1 AS place,
    c.oid,
    n.nspname::pg_catalog.text AS schema_name,
    c.relname::pg_catalog.text AS table_name,
    pg_catalog.format('%I.%I', n.nspname, c.relname) AS display,
    c.relkind::pg_catalog.text AS relkind,
    pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned,
    pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text AS owner,
    pg_catalog.has_table_privilege(c.oid, 'TRIGGER') AS may_trigger,
    w.name,
    tg.oid IS NOT NULL AS present,
    coalesce(tg.tgenabled::pg_catalog.text, '') AS enabled,
    coalesce(fn.nspname::pg_catalog.text, '') AS function_schema,
    coalesce(p.proname::pg_catalog.text, '') AS function_name,
    false AS installed_integer,
    '{}'::pg_catalog.text[] AS arguments,
    -- 8: AFTER DELETE FOR EACH STATEMENT; 16: AFTER UPDATE FOR EACH STATEMENT
    coalesce(tg.tgtype = CASE WHEN w.name = 'sexton_keep' THEN 8 ELSE 16 END AND tg.tgoldtable = 'sexton_deleted'
        AND tg.tgnewtable IS NOT DISTINCT FROM CASE WHEN w.name <> 'sexton_keep' THEN 'sexton_changed'::pg_catalog.name END, false) AS event_matches,
    coalesce(tg.tgnargs = 0 AND pg_catalog.pg_get_expr(tg.tgqual, 0) = '(pg_trigger_depth() > 0)', false) AS args_match
FROM unnest($1::pg_catalog.oid[], $2::pg_catalog.text[]) WITH ORDINALITY AS w (relid, name, ordinal)
JOIN pg_catalog.pg_class AS c ON c.oid = w.relid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_trigger AS tg ON tg.tgrelid = c.oid AND tg.tgname = w.name AND NOT tg.tgisinternal
LEFT JOIN pg_catalog.pg_proc AS p ON p.oid = tg.tgfoid
LEFT JOIN pg_catalog.pg_namespace AS fn ON fn.oid = p.pronamespace
ORDER BY w.ordinal;
