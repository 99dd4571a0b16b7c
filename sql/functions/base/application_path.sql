-- Returns the search_path of the application's triggers in a batch: the configured path,
-- or else the session's default. A setting with Sexton's own path is ignored, because
-- roles that connect through a pooler have such a setting.
CREATE OR REPLACE FUNCTION "sexton".application_path(configured text)
RETURNS text
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    found_path text;
BEGIN
    IF configured <> '' THEN
        RETURN configured;
    END IF;

    SELECT pg_catalog.substr(setting.value, 13) INTO found_path
    FROM pg_catalog.pg_db_role_setting AS setting_of
    CROSS JOIN LATERAL pg_catalog.unnest(setting_of.setconfig) AS setting (value)
    WHERE setting_of.setdatabase = ANY (ARRAY[
            0::pg_catalog.oid,
            (SELECT database.oid FROM pg_catalog.pg_database AS database WHERE database.datname = pg_catalog.current_database())
        ])
      AND setting_of.setrole = ANY (ARRAY[
            0::pg_catalog.oid,
            (SELECT role.oid FROM pg_catalog.pg_roles AS role WHERE role.rolname = session_user)
        ])
      AND pg_catalog.starts_with(setting.value, 'search_path=')
      AND setting.value <> 'search_path=pg_catalog, pg_temp'
    ORDER BY setting_of.setrole = 0::pg_catalog.oid, setting_of.setdatabase = 0::pg_catalog.oid
    LIMIT 1;

    RETURN coalesce(found_path, '"$user", public');
END;
$sexton$;

COMMENT ON FUNCTION "sexton".application_path(text) IS 'Sexton: search_path of the application''s triggers in a batch';
