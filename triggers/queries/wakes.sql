-- Returns the expected wake triggers. In the same order, $1 has the schemas of the
-- tables, $2 their names and $3 the job kinds. $4 and $5 have the keys of the awake
-- locks, and $6 the conditions. A table with a condition has two triggers.
WITH wanted AS (
    SELECT w.ordinal, 0 AS level, c.oid AS relid, w.schema_name, w.table_name, e.name, e.type_bits, NULL AS old_table, e.new_table,
        -- This is the condition with the lock's keys, in the form in which the server
        -- prints it. A condition on rows is compared by the trigger's second argument
        -- instead, because the server prints that condition in another form.
        CASE WHEN e.by_row THEN '' ELSE pg_catalog.format(
            '(pg_try_advisory_lock_shared(%1$s, %2$s) AND pg_advisory_unlock_shared(%1$s, %2$s))',
            CASE WHEN w.key_1 < 0 THEN pg_catalog.format('%L::integer', w.key_1) ELSE w.key_1::pg_catalog.text END,
            CASE WHEN w.key_2 < 0 THEN pg_catalog.format('%L::integer', w.key_2) ELSE w.key_2::pg_catalog.text END)
        END AS condition,
        CASE WHEN e.by_row THEN ARRAY[w.kind, w.due] ELSE ARRAY[w.kind] END AS arguments
    FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.text[], $4::int[], $5::int[], $6::pg_catalog.text[])
        WITH ORDINALITY AS w (schema_name, table_name, kind, key_1, key_2, due, ordinal)
    -- tgtype is 4 for AFTER INSERT FOR EACH STATEMENT, 5 for AFTER INSERT FOR EACH ROW
    -- and 17 for AFTER UPDATE FOR EACH ROW.
    JOIN (VALUES ('sexton_wake', 4, 'sexton_added', false), ('sexton_wake', 5, NULL, true), ('sexton_wake_update', 17, NULL, true))
        AS e (name, type_bits, new_table, by_row) ON e.by_row = (w.due <> '')
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema_name
    LEFT JOIN pg_catalog.pg_class AS c
        ON c.relnamespace = n.oid AND c.relname = w.table_name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
)
