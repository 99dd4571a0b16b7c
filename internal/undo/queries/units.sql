-- The newest deletions that are kept.
SELECT undo.id
FROM "sexton".undo AS undo
WHERE undo.origins IS NULL
GROUP BY undo.id
ORDER BY pg_catalog.max(undo.kept_at) DESC, undo.id DESC
LIMIT $1
