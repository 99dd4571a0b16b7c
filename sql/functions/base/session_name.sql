-- Returns the application_name of sessions that run batches, without the "#" and the
-- token that begin_batch appends. Name and token fit into the 63 bytes that Postgres
-- keeps. A hash distinguishes keys with the same beginning.
CREATE OR REPLACE FUNCTION "sexton".session_name(fence_key text)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    -- The function is in PL/pgSQL, because Postgres would parse and plan an SQL function
    -- in each batch.
    RETURN 'sexton ' || pg_catalog.left(fence_key, 24) || ' ' || pg_catalog.left(pg_catalog.md5(fence_key), 8);
END;
$sexton$;

COMMENT ON FUNCTION "sexton".session_name(text) IS 'Sexton: name of the sessions that work under a lease';
