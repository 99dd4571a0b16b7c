-- Stores which rows of a set are restored.
UPDATE "sexton".undo AS kept SET restored = $3::pg_catalog.int4[]
WHERE kept.id OPERATOR(pg_catalog.=) $1::pg_catalog.int8 AND kept.number OPERATOR(pg_catalog.=) $2::pg_catalog.int8
