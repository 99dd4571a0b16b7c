-- The query finds claims that were not released, and objects that still have to be
-- removed.
SELECT 'claimed', diff_id FROM sexton.external_diffs WHERE busy_until IS NOT NULL UNION ALL SELECT 'removed', diff_id FROM sexton.external_diff_removals;
