DROP FUNCTION IF EXISTS "sexton".delete_group_now(bigint, bigint);
DROP FUNCTION IF EXISTS "sexton".cancel_group_deletion(bigint, bigint);
DO $sexton$
BEGIN
    IF pg_catalog.to_regclass('"public".group_deletion_schedules') IS NOT NULL THEN
        DROP TRIGGER IF EXISTS sexton_group_schedule_lost ON "public".group_deletion_schedules;
    END IF;
END;
$sexton$;

DROP FUNCTION IF EXISTS "sexton".group_schedule_lost();
DROP FUNCTION IF EXISTS "sexton".restore_group(bigint, bigint, text);
DROP FUNCTION IF EXISTS "sexton".schedule_group_deletion(bigint, bigint);
DROP FUNCTION IF EXISTS "sexton".five_characters();
DROP FUNCTION IF EXISTS "sexton".open_group_door(text, bigint, bigint);

DELETE FROM "sexton".objects
WHERE identity IN (
    '"sexton".delete_group_now(bigint, bigint)',
    '"sexton".cancel_group_deletion(bigint, bigint)',
    '"sexton".restore_group(bigint, bigint, text)',
    '"sexton".group_schedule_lost()',
    '"public".group_deletion_schedules.sexton_group_schedule_lost',
    '"sexton".schedule_group_deletion(bigint, bigint)',
    '"sexton".five_characters()',
    '"sexton".open_group_door(text, bigint, bigint)'
);
