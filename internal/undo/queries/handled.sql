-- The sets $1 of parents $2 after which rows of the table $3 were cleaned up by the columns $4, before the set $5 was kept.
SELECT DISTINCT parent.id
FROM "sexton".undo AS undo
JOIN "sexton".undo_layouts AS layout ON layout.id = undo.layout
CROSS JOIN pg_catalog.unnest(undo.origins) AS parent (id)
WHERE undo.origins OPERATOR(pg_catalog.&&) $1::pg_catalog.int8[]
  AND undo.parent OPERATOR(pg_catalog.=) $2::pg_catalog.oid
  AND coalesce(pg_catalog.pg_partition_root(layout.relation)::pg_catalog.oid, layout.relation) OPERATOR(pg_catalog.=)
      coalesce(pg_catalog.pg_partition_root($3::pg_catalog.oid)::pg_catalog.oid, $3::pg_catalog.oid)
  AND undo.via OPERATOR(pg_catalog.=) $4::pg_catalog.text[]
  AND undo.number OPERATOR(pg_catalog.<) $5::pg_catalog.int8
