SELECT mark.unit, mark.number, mark.restored FROM "sexton".undo_marks AS mark WHERE mark.unit = ANY ($1::bigint[])
