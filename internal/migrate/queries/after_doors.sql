-- Grants the new functions to the roles that could call the replaced ones, and drops these.
DO $sexton$
DECLARE
    other record;
    statement text;
BEGIN
    -- A pooler drops the path that the connection asks for.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

    FOR other IN
        SELECT former.oid, former.oid::pg_catalog.regprocedure AS signature, function.oid::pg_catalog.regprocedure AS successor
        FROM pg_catalog.pg_proc AS former
        JOIN pg_catalog.pg_proc AS function
            ON function.pronamespace = former.pronamespace AND former.proname = 'replaced_' || function.proname
        WHERE former.pronamespace = 'sexton'::pg_catalog.regnamespace
    LOOP
        FOR statement IN
            SELECT pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %I', other.successor, role.rolname)
            FROM pg_catalog.pg_proc AS former
            CROSS JOIN LATERAL pg_catalog.aclexplode(former.proacl) AS entry
            JOIN pg_catalog.pg_roles AS role ON role.oid = entry.grantee
            WHERE former.oid = other.oid AND entry.grantee <> former.proowner
        LOOP
            EXECUTE statement;
        END LOOP;

        EXECUTE pg_catalog.format('DROP FUNCTION %s', other.signature);
    END LOOP;
END;
$sexton$
