SELECT mark.number, mark.restored FROM "sexton".undo_marks AS mark WHERE mark.unit = $1
