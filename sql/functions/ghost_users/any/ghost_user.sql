-- Returns the key of the configured ghost user, or NULL if none is configured.
CREATE OR REPLACE FUNCTION "sexton".ghost_user()
RETURNS "{type}"
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
    SELECT ghost."{key}" FROM "public"."{users}" AS ghost WHERE ghost."{key}" = '{ghost}'
$sexton$;

COMMENT ON FUNCTION "sexton".ghost_user() IS 'Sexton: finds the ghost user, which receives the contributions of deleted users';
