DROP TABLE IF EXISTS "sexton".undo, "sexton".undo_layouts, "sexton".undo_marks, "sexton".undo_state, "sexton".batches;

DO $sexton$
BEGIN
    IF pg_catalog.to_regclass('"public".loose_foreign_keys_deleted_records') IS NOT NULL THEN
        ALTER TABLE "public".loose_foreign_keys_deleted_records DROP COLUMN IF EXISTS origin;
        ALTER TABLE "sexton".swept DROP COLUMN IF EXISTS origins;
    END IF;
END;
$sexton$;
