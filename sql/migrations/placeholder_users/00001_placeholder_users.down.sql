-- A table of the application's stays; only what was added to it goes.
DO $sexton$
DECLARE
    own text;
BEGIN
    IF EXISTS (
        SELECT FROM "sexton".objects
        WHERE kind = 'table' AND identity = '"public".import_placeholder_user_details'
    ) THEN
        DROP TABLE IF EXISTS "public".import_placeholder_user_details;
    ELSE
        IF EXISTS (
            SELECT FROM "sexton".objects
            WHERE kind = 'index' AND identity = '"public".sexton_placeholder_user_details_eligible_idx'
        ) THEN
            DROP INDEX IF EXISTS "public".sexton_placeholder_user_details_eligible_idx;
        END IF;

        FOR own IN
            SELECT pg_catalog.substr(objects.identity, pg_catalog.length('"public".import_placeholder_user_details.') + 1)
            FROM "sexton".objects
            WHERE kind = 'column' AND pg_catalog.starts_with(objects.identity, '"public".import_placeholder_user_details.')
        LOOP
            EXECUTE pg_catalog.format('ALTER TABLE IF EXISTS %s DROP COLUMN IF EXISTS %I', '"public".import_placeholder_user_details', own);
        END LOOP;
    END IF;
END;
$sexton$;

DROP TABLE IF EXISTS "sexton".placeholder_rules;
