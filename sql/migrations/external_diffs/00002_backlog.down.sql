DROP FUNCTION IF EXISTS "sexton".external_diff_bytes(integer);
DROP FUNCTION IF EXISTS "sexton".backlog_of_external_diffs();

DELETE FROM "sexton".objects
WHERE identity IN ('"sexton".backlog_of_external_diffs()', '"sexton".external_diff_bytes(integer)');
