DROP FUNCTION IF EXISTS "sexton".begin_batch(text, bigint, integer, integer, boolean);
DROP FUNCTION IF EXISTS "sexton".session_name(text);
DROP TABLE IF EXISTS "sexton".events;
DROP TABLE IF EXISTS "sexton".fences;

DELETE FROM "sexton".objects
WHERE identity IN (
    '"sexton".fences',
    '"sexton".events',
    '"sexton".session_name(text)',
    '"sexton".begin_batch(text, bigint, integer, integer, boolean)'
);
