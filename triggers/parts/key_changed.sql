NOT EXISTS (
        SELECT
        FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = TG_RELID AND a.attnum = key_numbers[1]
            AND a.attname = 'key_name'::pg_catalog.name
            AND a.atttypid = TG_ARGV[2]::pg_catalog.oid)
