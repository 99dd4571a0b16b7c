-- Diffs in the database, and objects that are to go. Diffs that cannot be moved do not wait.
SELECT 'diffs', diff.id, greatest(diff.created_at AT TIME ZONE 'UTC', pg_postmaster_start_time())
FROM "public".merge_request_diffs AS diff
WHERE diff.files_count > 0 AND (NOT diff.stored_externally OR diff.stored_externally IS NULL)
AND NOT EXISTS (SELECT FROM "sexton".external_diffs AS known WHERE known.diff_id = diff.id AND known.skip_reason IS NOT NULL)
UNION ALL
SELECT 'objects', removal.diff_id, removal.queued_at FROM "sexton".external_diff_removals AS removal
