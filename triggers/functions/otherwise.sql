-- This statement is part of the tracking functions. It is run if the key's columns have
-- been renamed, or have other types, since the function was created. It reads the names
-- and types of the columns from the catalog, by attribute number.
EXECUTE (
    WITH RECURSIVE bases AS (
        SELECT t.oid AS declared, t.oid, t.typtype, t.typbasetype
        FROM pg_catalog.pg_type AS t
        JOIN pg_catalog.pg_attribute AS a ON a.atttypid = t.oid
        WHERE a.attrelid = TG_RELID AND a.attnum = ANY (key_numbers)
        UNION
        SELECT b.declared, t.oid, t.typtype, t.typbasetype
        FROM bases AS b
        JOIN pg_catalog.pg_type AS t ON t.oid = b.typbasetype
        WHERE b.typtype = 'd'
    ),
    key AS (
        SELECT
            pg_catalog.format('deleted.%I', a.attname) AS name,
            k.place,
            b.oid = ANY ('{20,21,23}'::pg_catalog.oid[]) AS is_integer
        FROM pg_catalog.unnest(key_numbers) WITH ORDINALITY AS k (number, place)
        JOIN pg_catalog.pg_attribute AS a
            ON a.attrelid = TG_RELID AND a.attnum = k.number
        JOIN bases AS b ON b.declared = a.atttypid AND b.typtype <> 'd'
    )
    SELECT pg_catalog.format(
        'INSERT INTO %I.loose_foreign_keys_deleted_records (fully_qualified_table_name, parent_oid, tracked_as, %s) '
        'SELECT $1, $2, $3, %s FROM %s AS deleted WHERE pg_catalog.num_nulls(%s) = 0',
        'tracked_schema',
        CASE WHEN pg_catalog.count(*) = 1 AND pg_catalog.bool_and(key.is_integer)
            THEN 'primary_key_value' ELSE 'primary_key_text' END,
        CASE
            WHEN pg_catalog.count(*) > 1
                THEN 'ARRAY[' ||
                    pg_catalog.string_agg(key.name || '::pg_catalog.text', ', ' ORDER BY key.place)
                    || ']::pg_catalog.text'
            WHEN pg_catalog.bool_and(key.is_integer) THEN pg_catalog.min(key.name)
            ELSE pg_catalog.min(key.name) || '::pg_catalog.text'
        END,
        key_source,
        pg_catalog.string_agg(key.name, ', ' ORDER BY key.place))
    FROM key)
USING present, root, installed;
