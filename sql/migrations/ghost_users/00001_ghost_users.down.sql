-- A table of the application's stays; only the columns that were added to it go.
DO $sexton$
DECLARE
    own text;
BEGIN
    IF EXISTS (
        SELECT FROM "sexton".objects
        WHERE kind = 'table' AND identity = '"public".users_ghost_user_migrations'
    ) THEN
        DROP TABLE IF EXISTS "public".users_ghost_user_migrations;
    ELSE
        FOR own IN
            SELECT pg_catalog.substr(objects.identity, pg_catalog.length('"public".users_ghost_user_migrations.') + 1)
            FROM "sexton".objects
            WHERE kind = 'column' AND pg_catalog.starts_with(objects.identity, '"public".users_ghost_user_migrations.')
        LOOP
            EXECUTE pg_catalog.format('ALTER TABLE IF EXISTS %s DROP COLUMN IF EXISTS %I', '"public".users_ghost_user_migrations', own);
        END LOOP;
    END IF;
END;
$sexton$;
