-- A table of the application's stays; only what was added to it goes.
DO $sexton$
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

        IF EXISTS (
            SELECT FROM "sexton".objects
            WHERE kind = 'column' AND identity = '"public".import_placeholder_user_details.last_error'
        ) THEN
            ALTER TABLE IF EXISTS "public".import_placeholder_user_details DROP COLUMN IF EXISTS last_error;
        END IF;

        IF EXISTS (
            SELECT FROM "sexton".objects
            WHERE kind = 'column' AND identity = '"public".import_placeholder_user_details.blocked_by'
        ) THEN
            ALTER TABLE IF EXISTS "public".import_placeholder_user_details DROP COLUMN IF EXISTS blocked_by;
        END IF;
    END IF;
END;
$sexton$;

DELETE FROM "sexton".objects
WHERE identity IN (
    '"public".import_placeholder_user_details',
    '"public".import_placeholder_user_details.last_error',
    '"public".import_placeholder_user_details.blocked_by',
    '"public".sexton_placeholder_user_details_eligible_idx'
);
