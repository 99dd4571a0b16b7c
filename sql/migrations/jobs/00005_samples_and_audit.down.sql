DROP TABLE IF EXISTS "sexton".audit;
DROP TABLE IF EXISTS "sexton".samples;

DELETE FROM "sexton".objects
WHERE identity IN ('"sexton".samples', '"sexton".audit');
