DROP FUNCTION IF EXISTS "sexton".group_destruction_above(bigint);

-- A rule of the application's own stays, and with it the schema.
DO $sexton$
BEGIN
    IF EXISTS (
        SELECT FROM pg_catalog.pg_proc
        WHERE oid = pg_catalog.to_regprocedure('"sexton".may_remove_group(bigint, bigint)')
          AND prosrc = 'SELECT "sexton".default_may_remove_group(user_id, group_id)'
    ) THEN
        DROP FUNCTION "sexton".may_remove_group(bigint, bigint);
    END IF;
END;
$sexton$;

DROP FUNCTION IF EXISTS "sexton".default_may_remove_group(bigint, bigint);
DROP FUNCTION IF EXISTS "sexton".group_deletion_cutoff();
DROP TABLE IF EXISTS "sexton".group_deletion_failures;
DROP TABLE IF EXISTS "sexton".group_destructions;

-- A table of the application's stays.
DO $sexton$
BEGIN
    IF EXISTS (
        SELECT FROM "sexton".objects
        WHERE kind = 'table' AND identity = '"public".group_deletion_schedules'
    ) THEN
        DROP TABLE IF EXISTS "public".group_deletion_schedules;
    END IF;
END;
$sexton$;

DELETE FROM "sexton".objects WHERE component = 'adjourned_groups' AND identity <> '"sexton".migrations_adjourned_groups';
