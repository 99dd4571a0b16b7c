ALTER TABLE IF EXISTS "sexton".external_diffs DROP COLUMN IF EXISTS skip_state;
