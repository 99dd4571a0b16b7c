DROP TABLE IF EXISTS "sexton".runs;
DROP TABLE IF EXISTS "sexton".leases;

DELETE FROM "sexton".objects
WHERE identity IN ('"sexton".leases', '"sexton".runs');
