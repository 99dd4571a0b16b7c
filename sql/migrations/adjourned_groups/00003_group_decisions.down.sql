DROP FUNCTION IF EXISTS "sexton".decide_group_deletion(bigint, timestamptz);
DROP FUNCTION IF EXISTS "sexton".group_destroy_job(bigint, bigint);

DELETE FROM "sexton".objects
WHERE identity IN (
    '"sexton".decide_group_deletion(bigint, timestamp with time zone)',
    '"sexton".group_destroy_job(bigint, bigint)'
);
