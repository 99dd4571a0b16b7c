(
        NOT EXISTS (
            SELECT
            FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid OPERATOR(pg_catalog.=) TG_RELID AND a.attnum OPERATOR(pg_catalog.=) ANY (key_numbers) AND a.attisdropped)
        AND TG_ARGV[3] OPERATOR(pg_catalog.=) pg_catalog.concat(
            (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c), '/', TG_RELID))
