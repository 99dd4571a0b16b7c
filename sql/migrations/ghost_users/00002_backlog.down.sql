DROP FUNCTION IF EXISTS "sexton".backlog_of_ghost_users();

DELETE FROM "sexton".objects
WHERE identity = '"sexton".backlog_of_ghost_users()';
