SELECT "sexton".begin_batch($1, $2, $3, $4, $5)
