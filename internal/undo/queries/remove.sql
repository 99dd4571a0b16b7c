DELETE FROM "sexton".undo AS undo WHERE undo.id = $1 AND undo.number = $2
