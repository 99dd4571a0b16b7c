-- The objects stay where they are, and so do the columns that say where: programs that read diffs from them can go on. The markers
-- stay in the stores, too. An installation that comes after this one takes them over by `sexton diffs adopt`.
DO $sexton$
BEGIN
    IF pg_catalog.to_regclass('"public".merge_request_diffs') IS NOT NULL THEN
        DROP TRIGGER IF EXISTS sexton_external_diffs_removed ON "public".merge_request_diffs;
    END IF;
END;
$sexton$;

DROP TABLE IF EXISTS
    "sexton".external_diff_stores, "sexton".external_diff_installation, "sexton".external_diff_cursors, "sexton".external_diff_removals,
    "sexton".external_diffs;
