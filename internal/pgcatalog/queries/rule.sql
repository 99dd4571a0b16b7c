-- Reports for the function $2 in schema $1 with arguments of the types $3 whether it is
-- STRICT, is SECURITY DEFINER and has a search_path of its own. The last column is the
-- type that it returns.
SELECT function.proisstrict,
    function.prosecdef,
    EXISTS (SELECT FROM pg_catalog.unnest(function.proconfig) AS setting (text) WHERE pg_catalog.starts_with(setting.text, 'search_path=')),
    CASE WHEN function.proretset THEN 'SETOF ' ELSE '' END || pg_catalog.format_type(function.prorettype, NULL)
FROM pg_catalog.pg_proc AS function
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = function.pronamespace
WHERE namespace.nspname = $1 AND function.proname = $2 AND function.prokind = 'f'
  AND pg_catalog.oidvectortypes(function.proargtypes) = (
      SELECT pg_catalog.string_agg(pg_catalog.format_type(argument.name::pg_catalog.regtype, NULL), ', ')
      FROM pg_catalog.unnest($3::pg_catalog.text[]) AS argument (name)
  );
