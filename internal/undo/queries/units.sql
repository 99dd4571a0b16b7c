-- Returns the newest kept deletions. Rows that a trigger or cascade deleted along with others (via) are not a deletion of their own.
SELECT undo.id
FROM "sexton".undo AS undo
WHERE undo.origins IS NULL AND undo.via IS NULL
GROUP BY undo.id
ORDER BY pg_catalog.max(undo.kept_at) DESC, undo.id DESC
LIMIT $1
