-- Foreign keys that delete or change rows of other tables along with rows of $1, except deletions from the tables $2, which keep their rows themselves.
SELECT class.oid::pg_catalog.regclass::pg_catalog.text, key.conname::pg_catalog.text, above.oid::pg_catalog.regclass::pg_catalog.text
FROM pg_catalog.pg_constraint AS key
JOIN pg_catalog.pg_class AS class ON class.oid = key.conrelid
JOIN pg_catalog.pg_class AS above ON above.oid = key.confrelid
WHERE key.contype = 'f' AND key.conparentid = 0 AND key.confdeltype IN ('c', 'n', 'd') AND key.confrelid = ANY ($1::pg_catalog.oid[])
  AND NOT (key.confdeltype = 'c' AND key.conrelid = ANY ($2::pg_catalog.oid[]))
ORDER BY 1, 2
