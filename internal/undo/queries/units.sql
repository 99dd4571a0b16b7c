-- The newest deletions that are kept. What a trigger of the application takes along from tables that are not tracked is none.
SELECT undo.id
FROM "sexton".undo AS undo
WHERE undo.origins IS NULL AND undo.via IS NULL
GROUP BY undo.id
ORDER BY pg_catalog.max(undo.kept_at) DESC, undo.id DESC
LIMIT $1
