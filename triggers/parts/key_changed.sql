NOT EXISTS (
        SELECT
        FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid OPERATOR(pg_catalog.=) TG_RELID AND a.attnum OPERATOR(pg_catalog.=) key_numbers[1]
            AND a.attname OPERATOR(pg_catalog.=) 'key_name'::pg_catalog.name
            AND a.atttypid OPERATOR(pg_catalog.=) TG_ARGV[2]::pg_catalog.oid)
