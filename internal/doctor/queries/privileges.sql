-- Objects are looked up in the catalogue, as resolving their names would need the very rights that are in question. Missing objects lack no
-- right; NULL stands for them. No function of ours is overloaded.
WITH wanted AS (
    SELECT wanted.*, namespace.oid AS namespace, class.oid AS class, proc.oid AS proc
    FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.text[], $4::pg_catalog.text[])
        WITH ORDINALITY AS wanted (kind, schema, name, privilege, position)
    LEFT JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = wanted.schema
    LEFT JOIN pg_catalog.pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = wanted.name AND wanted.kind IN ('TABLE', 'SEQUENCE')
    LEFT JOIN pg_catalog.pg_proc AS proc ON proc.pronamespace = namespace.oid AND proc.proname = wanted.name AND wanted.kind = 'FUNCTION'
), judged AS (
    SELECT wanted.*,
        CASE wanted.kind
            WHEN 'SCHEMA' THEN pg_catalog.has_schema_privilege(wanted.namespace, wanted.privilege)
            WHEN 'TABLE' THEN pg_catalog.has_table_privilege(wanted.class, wanted.privilege)
            WHEN 'SEQUENCE' THEN pg_catalog.has_sequence_privilege(wanted.class, wanted.privilege)
            ELSE pg_catalog.has_function_privilege(wanted.proc, wanted.privilege)
        END AS granted,
        wanted.kind = 'TABLE' AND coalesce(pg_catalog.row_security_active(wanted.class), false) AS hidden
    FROM wanted
)
SELECT pg_catalog.lower(judged.kind),
       CASE judged.kind
           WHEN 'SCHEMA' THEN pg_catalog.format('%I', judged.schema)
           WHEN 'FUNCTION' THEN pg_catalog.format('%I.%I(%s)', judged.schema, judged.name, pg_catalog.pg_get_function_identity_arguments(judged.proc))
           ELSE pg_catalog.format('%I.%I', judged.schema, judged.name)
       END,
       coalesce(pg_catalog.string_agg(judged.privilege, ', ' ORDER BY judged.position) FILTER (WHERE NOT judged.granted), ''),
       pg_catalog.bool_or(judged.hidden),
       pg_catalog.format('%I', current_user)
FROM judged
WHERE NOT judged.granted OR judged.hidden
GROUP BY judged.kind, judged.schema, judged.name, judged.proc
ORDER BY pg_catalog.min(judged.position)
