DO $sexton$
BEGIN
    IF pg_catalog.to_regclass('"public".group_deletion_schedules') IS NOT NULL THEN
        DROP TRIGGER IF EXISTS sexton_group_schedule_lost ON "public".group_deletion_schedules;
    END IF;

    -- A table of the application's stays.
    IF EXISTS (
        SELECT FROM "sexton".objects
        WHERE kind = 'table' AND identity = '"public".group_deletion_schedules'
    ) THEN
        DROP TABLE IF EXISTS "public".group_deletion_schedules;
    END IF;

    -- A rule of the application's own stays, and with it the schema.
    IF EXISTS (
        SELECT FROM pg_catalog.pg_proc
        WHERE oid = pg_catalog.to_regprocedure('"sexton".may_remove_group(bigint, bigint)')
          AND prosrc = 'SELECT "sexton".default_may_remove_group(user_id, group_id)'
    ) THEN
        DROP FUNCTION "sexton".may_remove_group(bigint, bigint);
    END IF;
END;
$sexton$;

DELETE FROM "sexton".objects WHERE identity = '"sexton".may_remove_group(bigint, bigint)';

DROP TABLE IF EXISTS "sexton".group_deletion_failures, "sexton".group_destructions;
