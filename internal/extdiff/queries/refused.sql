-- Is true for a diff that could not be moved and has not changed since. The scheduler skips such diffs, but Move checks them again. OFFSET 0 makes
-- the planner use one index probe per diff.
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
