-- Which of the sets $1 there are.
SELECT DISTINCT undo.id FROM "sexton".undo AS undo WHERE undo.id = ANY ($1::bigint[])
