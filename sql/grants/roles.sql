-- Roles belong to the server, not to one database. Existing roles stay as they are.
DO $sexton$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[:'application', :'worker', :'viewer'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = name) THEN
            EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', name);
        END IF;
    END LOOP;
END;
$sexton$;
