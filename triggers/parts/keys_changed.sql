(
        SELECT pg_catalog.count(*)
        FROM ROWS FROM (pg_catalog.unnest(key_numbers), pg_catalog.unnest('key_names'::pg_catalog.name[])) AS k (number, name)
        JOIN pg_catalog.pg_attribute AS a
            ON a.attrelid OPERATOR(pg_catalog.=) TG_RELID AND a.attnum OPERATOR(pg_catalog.=) k.number
            AND a.attname OPERATOR(pg_catalog.=) k.name
    ) OPERATOR(pg_catalog.<>) pg_catalog.cardinality(key_numbers)
