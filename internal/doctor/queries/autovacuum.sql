-- Boolean options may be written in many ways, which the cast knows.
SELECT pg_catalog.format('%I.%I', namespace.nspname, class.relname)
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE class.relkind = 'r'
  AND (namespace.nspname = $1 OR namespace.nspname = $2 AND class.relname = 'loose_foreign_keys_deleted_records')
  AND EXISTS (
      SELECT FROM pg_catalog.pg_options_to_table(class.reloptions) AS option
      WHERE option.option_name = 'autovacuum_enabled' AND NOT option.option_value::boolean
  )
ORDER BY 1;
