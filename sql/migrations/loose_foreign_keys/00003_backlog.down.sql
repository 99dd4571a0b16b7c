DROP FUNCTION IF EXISTS "sexton".backlog_of_loose_foreign_keys();

DELETE FROM "sexton".objects
WHERE identity = '"sexton".backlog_of_loose_foreign_keys()';
