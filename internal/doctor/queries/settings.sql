-- Returns the values with which sessions begin, in milliseconds.
SELECT setting.name, setting.reset_val::bigint, setting.source, pg_catalog.format('%I', current_user), pg_catalog.format('%I', pg_catalog.current_database())
FROM pg_catalog.pg_settings AS setting
WHERE setting.name = ANY ($1::pg_catalog.text[]) AND setting.reset_val::bigint > 0
ORDER BY pg_catalog.array_position($1::pg_catalog.text[], setting.name);
