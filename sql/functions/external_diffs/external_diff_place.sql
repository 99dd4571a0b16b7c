-- Returns the identity of this database: the server's identifier, which initdb creates
-- and replicas share, and the database's OID. A dump that is restored elsewhere gets
-- another identity. If a service does not return the identifier, only the OID is
-- compared.
CREATE OR REPLACE FUNCTION "sexton".external_diff_place()
RETURNS text
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    number oid := (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database());
BEGIN
    RETURN (SELECT system_identifier FROM pg_catalog.pg_control_system()) || '/' || number;
EXCEPTION
    WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        RETURN 'unknown/' || number;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".external_diff_place() IS 'Sexton: the identity of server and database';
