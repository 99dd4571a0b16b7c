DROP FUNCTION IF EXISTS "sexton".application_path(text);
DROP FUNCTION IF EXISTS "sexton".begin_batch(text, bigint, integer, integer, boolean);
DROP FUNCTION IF EXISTS "sexton".session_name(text);
DROP FUNCTION IF EXISTS "sexton".application_table(text);
DROP FUNCTION IF EXISTS "sexton".count_rows(text, text, bigint);
DROP TABLE IF EXISTS "sexton".run_counts;
DROP TABLE IF EXISTS "sexton".application_tables;
DROP TABLE IF EXISTS "sexton".events;
DROP TABLE IF EXISTS "sexton".fences;

DELETE FROM "sexton".objects
WHERE identity IN (
    '"sexton".fences',
    '"sexton".events',
    '"sexton".run_counts',
    '"sexton".count_rows(text, text, bigint)',
    '"sexton".application_tables',
    '"sexton".application_table(text)',
    '"sexton".session_name(text)',
    '"sexton".begin_batch(text, bigint, integer, integer, boolean)',
    '"sexton".application_path(text)'
);
