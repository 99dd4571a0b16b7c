SELECT "sexton".undo_layout($1::pg_catalog.oid, $2::pg_catalog.text[])
