-- What a diff was like when it was refused: files_count, and a fingerprint of its files' row versions. It is looked at again once that
-- is no longer what it is.
ALTER TABLE "sexton".external_diffs ADD COLUMN skip_state text;

-- The upload in parts that an attempt has begun: the next one goes on with it. NULL where there is none.
ALTER TABLE "sexton".external_diffs
    ADD COLUMN upload_id text,
    -- What the parts are of: the form of objects, the store, the key, and a fingerprint of the files' row versions.
    ADD COLUMN upload_state text,
    ADD COLUMN upload_bytes bigint,
    ADD COLUMN upload_sent bigint NOT NULL DEFAULT 0,
    ADD COLUMN upload_began_at timestamptz,
    -- When a worker was last at it.
    ADD COLUMN upload_seen_at timestamptz,
    -- How often no byte has moved for too long, or the store was away, and why the last time.
    ADD COLUMN upload_failures integer NOT NULL DEFAULT 0,
    ADD COLUMN upload_error text;

CREATE INDEX external_diffs_upload_id_idx ON "sexton".external_diffs (upload_id) WHERE upload_id IS NOT NULL;
