-- Returns the tables among $1 with a trigger, rule or policy that may keep rows which a
-- statement deletes, or write other rows.
SELECT class.oid
FROM pg_catalog.pg_class AS class
WHERE class.oid = ANY ($1::pg_catalog.oid[])
  AND (class.relrowsecurity OR class.relhasrules OR EXISTS (
      SELECT FROM pg_catalog.pg_trigger AS hook
      WHERE hook.tgrelid = class.oid AND NOT hook.tgisinternal AND hook.tgenabled <> 'D'
        AND NOT pg_catalog.starts_with(hook.tgname, 'sexton_')
  ))
