-- Holds for a diff that cannot be moved and has not changed since that was found. The scheduler leaves it out; a mover that
-- is asked for it looks again. OFFSET 0 has it be one probe per diff.
EXISTS (
    SELECT
    FROM "sexton".external_diffs AS ledger
    WHERE ledger.diff_id = diff.id
      AND ledger.skip_reason IS NOT NULL
      AND ledger.skip_state = coalesce(diff.files_count, 0)::pg_catalog.text OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) (
          SELECT {fingerprint} FROM "public".merge_request_diff_files AS file WHERE file.merge_request_diff_id = diff.id
      )
    OFFSET 0
)
