DROP VIEW IF EXISTS "sexton".backlog;
DROP FUNCTION IF EXISTS "sexton".backlog_rows();

DELETE FROM "sexton".objects
WHERE identity IN ('"sexton".backlog_rows()', '"sexton".backlog');
