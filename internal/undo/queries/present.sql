-- Returns the sets among $1 that exist.
SELECT DISTINCT undo.id FROM "sexton".undo AS undo WHERE undo.id = ANY ($1::bigint[])
