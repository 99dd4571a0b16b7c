(
        NOT EXISTS (
            SELECT
            FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = TG_RELID AND a.attnum = ANY (key_numbers) AND a.attisdropped)
        AND TG_ARGV[3] = pg_catalog.concat(
            (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c), '/', TG_RELID))
