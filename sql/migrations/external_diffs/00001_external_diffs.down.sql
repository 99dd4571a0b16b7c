-- The objects stay where they are, and so do the columns that say where: programs that read diffs from them can go on.
DO $sexton$
BEGIN
    IF pg_catalog.to_regclass('"public".merge_request_diffs') IS NOT NULL THEN
        DROP TRIGGER IF EXISTS sexton_external_diffs_removed ON "public".merge_request_diffs;
    END IF;
END;
$sexton$;

DROP FUNCTION IF EXISTS "sexton".external_diffs_removed();
DROP FUNCTION IF EXISTS "sexton".external_diff_layout(bigint);
DROP FUNCTION IF EXISTS "sexton".external_diff_body(text);
DROP FUNCTION IF EXISTS "sexton".external_diff_encoded(text);
DROP TABLE IF EXISTS "sexton".external_diff_cursors;
DROP TABLE IF EXISTS "sexton".external_diff_removals;
DROP TABLE IF EXISTS "sexton".external_diffs;

DELETE FROM "sexton".objects
WHERE identity IN (
    '"sexton".external_diffs',
    '"sexton".external_diff_removals',
    '"sexton".external_diff_cursors',
    '"sexton".external_diff_encoded(text)',
    '"sexton".external_diff_body(text)',
    '"sexton".external_diff_layout(bigint)',
    '"sexton".external_diffs_removed()',
    '"public".merge_request_diffs.sexton_external_diffs_removed'
);
