DROP TABLE IF EXISTS "sexton".generations;
DROP TABLE IF EXISTS "sexton".job_kinds;
DROP TABLE IF EXISTS "sexton".schedules;
DROP TABLE IF EXISTS "sexton".clients;

DELETE FROM "sexton".objects
WHERE identity IN ('"sexton".clients', '"sexton".schedules', '"sexton".job_kinds', '"sexton".generations');
