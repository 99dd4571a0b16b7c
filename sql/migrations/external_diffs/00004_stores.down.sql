-- The markers stay in the stores. An installation that comes after this one takes them over by `sexton diffs adopt`.
DROP FUNCTION IF EXISTS "sexton".external_diff_place();
DROP TABLE IF EXISTS "sexton".external_diff_stores;
DROP TABLE IF EXISTS "sexton".external_diff_installation;

DELETE FROM "sexton".objects
WHERE identity IN ('"sexton".external_diff_installation', '"sexton".external_diff_stores', '"sexton".external_diff_place()');
