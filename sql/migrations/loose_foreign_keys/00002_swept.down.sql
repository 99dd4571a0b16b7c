DROP TABLE IF EXISTS "sexton".swept;

DELETE FROM "sexton".objects
WHERE identity = '"sexton".swept';
