-- Returns the newest kept deletions. Sets with via were caused by a trigger or cascade, so they are part of another deletion.
SELECT undo.id
FROM "sexton".undo AS undo
WHERE undo.origins IS NULL AND undo.via IS NULL
GROUP BY undo.id
ORDER BY pg_catalog.max(undo.kept_at) DESC, undo.id DESC
LIMIT $1
