DROP FUNCTION IF EXISTS "sexton".backlog_of_external_diff_removals();

DELETE FROM "sexton".objects
WHERE identity = '"sexton".backlog_of_external_diff_removals()';
