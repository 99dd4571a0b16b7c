-- What a diff was like when it was refused: files_count, and a fingerprint of its files' row versions. It is looked at again once that
-- is no longer what it is.
ALTER TABLE "sexton".external_diffs ADD COLUMN skip_state text;
