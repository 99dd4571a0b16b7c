-- Locks sets, and returns their numbers and their restored rows.
SELECT kept.number, coalesce(kept.restored, '{}') AS restored
FROM "sexton".undo AS kept
WHERE kept.id OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND kept.number OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.int8[])
FOR NO KEY UPDATE
