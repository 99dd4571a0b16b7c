-- Those of the tables $1 in which a trigger, rule or policy may keep rows that a statement deletes, or write others.
SELECT class.oid
FROM pg_catalog.pg_class AS class
WHERE class.oid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.oid[])
  AND (class.relrowsecurity OR class.relhasrules OR EXISTS (
      SELECT FROM pg_catalog.pg_trigger AS hook
      WHERE hook.tgrelid OPERATOR(pg_catalog.=) class.oid AND NOT hook.tgisinternal AND hook.tgenabled OPERATOR(pg_catalog.<>) 'D'
        AND NOT pg_catalog.starts_with(hook.tgname, 'sexton_')
  ))
