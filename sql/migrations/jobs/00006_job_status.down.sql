DROP FUNCTION IF EXISTS "sexton".job_status(bigint);

DELETE FROM "sexton".objects
WHERE identity = '"sexton".job_status(bigint)';
