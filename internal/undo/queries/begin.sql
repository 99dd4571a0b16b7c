SELECT "sexton".begin_batch($1, 0, $2, $3, $4, $5)
