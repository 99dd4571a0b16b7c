-- Returns the tracking functions and key columns of the triggers on the parents and their
-- partitions. $1 has the indexes of the parents, $2 their schemas, $3 their names and $4
-- their key columns, in the same order, with one element per key column. $5 is the schema
-- of the functions. same_columns is NULL if a trigger's attribute numbers belong to
-- another table, as after a restore.
WITH RECURSIVE parents AS (
    SELECT w.place, root.oid, pg_catalog.array_agg(w.column_name ORDER BY w.ordinal) AS columns
    FROM unnest($1::int[], $2::pg_catalog.text[], $3::pg_catalog.text[], $4::pg_catalog.text[]) WITH ORDINALITY AS w (place, schema_name, table_name, column_name, ordinal)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema_name
    JOIN pg_catalog.pg_class AS root ON root.relnamespace = n.oid AND root.relname = w.table_name
    GROUP BY w.place, root.oid
),
tables AS (
    SELECT p.* FROM parents AS p
    UNION
    SELECT t.place, below.inhrelid, t.columns
    FROM tables AS t
    JOIN pg_catalog.pg_inherits AS below ON below.inhparent = t.oid
    JOIN pg_catalog.pg_class AS part ON part.oid = below.inhrelid AND part.relispartition
),
installed AS (
    SELECT t.place, t.oid, p.proname::pg_catalog.text AS function, a.args, k.numbers, k.integer,
        pg_catalog.cardinality(a.args) - 1 AS last,
        pg_catalog.concat((SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c), '/', t.oid) AS about
    FROM tables AS t
    JOIN pg_catalog.pg_trigger AS tg ON tg.tgrelid = t.oid AND tg.tgname = 'sexton_track' AND NOT tg.tgisinternal
    JOIN pg_catalog.pg_proc AS p ON p.oid = tg.tgfoid
    JOIN pg_catalog.pg_namespace AS fn ON fn.oid = p.pronamespace AND fn.nspname = $5::pg_catalog.text
    -- Each argument ends with a zero byte. Names may contain any text, so the other
    -- arguments are counted from the end.
    CROSS JOIN LATERAL pg_catalog.string_to_array(pg_catalog.encode(tg.tgargs, 'escape'), E'\\000') AS a (args)
    CROSS JOIN LATERAL (
        SELECT pg_catalog.array_agg(a.attnum ORDER BY c.place)::pg_catalog.text AS numbers,
            pg_catalog.count(*) = 1 AND pg_catalog.bool_and(a.atttypid = ANY ('{20,21,23}'::pg_catalog.oid[])) AS integer
        FROM pg_catalog.unnest(t.columns) WITH ORDINALITY AS c (name, place)
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = t.oid AND a.attname = c.name AND a.attnum > 0
    ) AS k
)
SELECT
    i.place,
    i.oid::pg_catalog.regclass::pg_catalog.text AS display,
    i.function,
    CASE WHEN i.args[i.last] = i.about THEN i.args[i.last - 2] = i.numbers END AS same_columns,
    coalesce((i.args[i.last - 1] = ANY ('{20,21,23}')) <> i.integer, false) AS other_type
FROM installed AS i
ORDER BY i.place, pg_catalog.pg_partition_root(i.oid) <> i.oid, display;
