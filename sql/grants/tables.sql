-- worker: the tables of the application that it works on, with their partitions. Tables that are not here are left out. Where
-- this role may not grant a right, a warning has the statement for the owner of the table.
DO $sexton$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        WITH RECURSIVE wanted AS (
            SELECT pg_catalog.to_regclass(listed.name) AS relation, listed.privileges, listed.referring
            FROM pg_catalog.json_to_recordset(:'tables') AS listed (name text, privileges text, referring text)
        ), below (relation, privileges, referring, depth) AS (
            SELECT wanted.relation::pg_catalog.oid, wanted.privileges, wanted.referring, 0
            FROM wanted
            WHERE wanted.referring <> '' AND wanted.relation IS NOT NULL
            UNION
            -- One depth for all that is below: this ends where no further table is found.
            SELECT reference.conrelid, below.privileges, below.referring, 1
            FROM below
            JOIN pg_catalog.pg_constraint AS reference ON reference.contype = 'f' AND reference.confrelid = below.relation
            WHERE below.depth = 0 OR below.referring = 'all'
        ), granted (relation, privileges) AS (
            SELECT wanted.relation::pg_catalog.oid, wanted.privileges FROM wanted WHERE wanted.referring = '' AND wanted.relation IS NOT NULL
            UNION
            SELECT below.relation, below.privileges FROM below WHERE below.depth = 1
        ), leaf (relation, privileges) AS (
            SELECT granted.relation, granted.privileges FROM granted
            UNION
            -- Not pg_partition_tree, which waits for the locks of other sessions.
            SELECT part.oid, leaf.privileges
            FROM leaf
            JOIN pg_catalog.pg_inherits AS inherits ON inherits.inhparent = leaf.relation
            JOIN pg_catalog.pg_class AS part ON part.oid = inherits.inhrelid AND part.relispartition
        )
        SELECT pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', namespace.nspname, :'worker')
        FROM leaf
        JOIN pg_catalog.pg_class AS class ON class.oid = leaf.relation
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
        WHERE NOT pg_catalog.has_schema_privilege(:'worker', class.relnamespace, 'USAGE')
        UNION
        -- Statements name the operators of a key, and its type, with their schema, such as that of an extension.
        SELECT pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', namespace.nspname, :'worker')
        FROM leaf
        JOIN pg_catalog.pg_attribute AS attribute
            ON attribute.attrelid = leaf.relation AND attribute.attnum > 0 AND NOT attribute.attisdropped
        JOIN pg_catalog.pg_type AS declared ON declared.oid = attribute.atttypid
        LEFT JOIN pg_catalog.pg_type AS base ON base.oid = declared.typbasetype
        CROSS JOIN LATERAL (
            SELECT declared.typnamespace
            UNION
            SELECT base.typnamespace
            UNION
            SELECT operator.oprnamespace
            FROM pg_catalog.pg_opclass AS class
            JOIN pg_catalog.pg_am AS method ON method.oid = class.opcmethod AND method.amname = 'btree'
            JOIN pg_catalog.pg_amop AS member ON member.amopfamily = class.opcfamily
            JOIN pg_catalog.pg_operator AS operator ON operator.oid = member.amopopr
            WHERE class.opcintype = coalesce(base.oid, declared.oid)
        ) AS used (schema)
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = used.schema
        WHERE NOT pg_catalog.has_schema_privilege(:'worker', namespace.oid, 'USAGE')
        UNION
        SELECT pg_catalog.format('GRANT %s ON TABLE %I.%I TO %I', leaf.privileges, namespace.nspname, class.relname, :'worker')
        FROM leaf
        JOIN pg_catalog.pg_class AS class ON class.oid = leaf.relation
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
        ORDER BY 1
    LOOP
        BEGIN
            EXECUTE statement;
        EXCEPTION
            WHEN insufficient_privilege THEN
                RAISE WARNING '%: %', SQLERRM, statement;
        END;
    END LOOP;
END;
$sexton$;
