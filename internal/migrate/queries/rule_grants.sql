-- The statements that revoke EXECUTE from the role $1 on the rules of the application that Sexton's functions call.
SELECT pg_catalog.format('REVOKE EXECUTE ON FUNCTION %s FROM %I', rule.oid::pg_catalog.regprocedure, $1::pg_catalog.text)
FROM pg_catalog.pg_proc AS rule
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = rule.pronamespace
CROSS JOIN LATERAL pg_catalog.aclexplode(rule.proacl) AS entry
JOIN pg_catalog.pg_roles AS role ON role.oid = entry.grantee AND role.rolname = $1
CROSS JOIN LATERAL (
    SELECT pg_catalog.quote_literal(pg_catalog.format('"%s"."%s"(%s)', pg_catalog.replace(namespace.nspname, '"', '""'),
        pg_catalog.replace(rule.proname, '"', '""'), pg_catalog.oidvectortypes(rule.proargtypes)))
) AS called (text)
WHERE namespace.nspname <> 'sexton' AND EXISTS (
    SELECT FROM pg_catalog.pg_proc AS door
    WHERE door.pronamespace = pg_catalog.to_regnamespace('sexton') AND pg_catalog.strpos(door.prosrc, called.text) > 0
);
