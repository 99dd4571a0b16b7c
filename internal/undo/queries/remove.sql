DELETE FROM "sexton".undo AS undo WHERE undo.id = ANY ($1) AND undo.number = ANY ($2)
