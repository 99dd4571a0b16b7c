-- Returns the timeouts $1 that are set for new sessions of the current role in this
-- database, in milliseconds, with the source of each value. Timeouts that are 0 are left
-- out.
SELECT setting.name, setting.reset_val::bigint, setting.source, pg_catalog.format('%I', current_user), pg_catalog.format('%I', pg_catalog.current_database())
FROM pg_catalog.pg_settings AS setting
WHERE setting.name = ANY ($1::pg_catalog.text[]) AND setting.reset_val::bigint > 0
ORDER BY pg_catalog.array_position($1::pg_catalog.text[], setting.name);
