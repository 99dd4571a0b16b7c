(
        SELECT pg_catalog.count(*)
        FROM ROWS FROM (pg_catalog.unnest(key_numbers), pg_catalog.unnest('key_names'::pg_catalog.name[])) AS k (number, name)
        JOIN pg_catalog.pg_attribute AS a
            ON a.attrelid = TG_RELID AND a.attnum = k.number
            AND a.attname = k.name
    ) <> pg_catalog.cardinality(key_numbers)
