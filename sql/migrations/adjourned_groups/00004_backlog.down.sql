DROP FUNCTION IF EXISTS "sexton".backlog_of_adjourned_groups();

DELETE FROM "sexton".objects
WHERE identity = '"sexton".backlog_of_adjourned_groups()';
