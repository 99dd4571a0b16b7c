SELECT layout.id, layout.relation, layout.columns, layout.types, layout.terms, layout.size, layout.key
FROM "sexton".undo_layouts AS layout
WHERE layout.id OPERATOR(pg_catalog.=) $1
