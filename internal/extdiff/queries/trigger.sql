-- Reports whether the trigger $1 fires. Returns no row if the trigger is missing.
SELECT installed.tgenabled IN ('O', 'A')
FROM pg_catalog.pg_trigger AS installed
WHERE installed.tgrelid = '"public".merge_request_diffs'::pg_catalog.regclass::pg_catalog.oid
  AND installed.tgname = $1
