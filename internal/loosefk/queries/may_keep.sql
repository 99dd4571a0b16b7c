-- Those of the tables $1 in which a trigger, rule or policy may keep rows that a statement deletes, or write others.
SELECT class.oid
FROM pg_catalog.pg_class AS class
WHERE class.oid = ANY ($1::pg_catalog.oid[])
  AND (class.relrowsecurity OR class.relhasrules OR EXISTS (
      SELECT FROM pg_catalog.pg_trigger AS hook
      WHERE hook.tgrelid = class.oid AND NOT hook.tgisinternal AND hook.tgenabled <> 'D'
        AND NOT pg_catalog.starts_with(hook.tgname, 'sexton_')
  ))
