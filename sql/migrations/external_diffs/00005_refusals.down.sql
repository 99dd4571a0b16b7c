ALTER TABLE IF EXISTS "sexton".external_diffs DROP COLUMN IF EXISTS skip_state;
ALTER TABLE IF EXISTS "sexton".external_diffs
    DROP COLUMN IF EXISTS upload_id,
    DROP COLUMN IF EXISTS upload_state,
    DROP COLUMN IF EXISTS upload_bytes,
    DROP COLUMN IF EXISTS upload_sent,
    DROP COLUMN IF EXISTS upload_began_at,
    DROP COLUMN IF EXISTS upload_seen_at,
    DROP COLUMN IF EXISTS upload_failures,
    DROP COLUMN IF EXISTS upload_error;
