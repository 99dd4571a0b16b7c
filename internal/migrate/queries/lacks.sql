-- Returns the missing privileges: of all roles on Sexton's objects ($1), and of the
-- worker's role $3 on the application's tables ($2). The first column is the role that
-- may grant the privilege: the current role or else the owner. It is empty if only a
-- superuser may. The other columns are whether the privilege is optional, the kind and
-- name of the object, the privileges, the role that lacks them, and the statement that
-- grants them. Objects are found in the catalog, because resolving their names would need
-- the missing privileges. Missing objects are left out. Sexton's functions are not
-- overloaded.
WITH RECURSIVE listed AS (
    SELECT class.oid AS relation, listed.privileges, listed.referring
    FROM pg_catalog.json_to_recordset($2::pg_catalog.json) AS listed (name text, privileges text, referring text)
    CROSS JOIN LATERAL pg_catalog.parse_ident(listed.name) AS parts
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = parts[1]
    JOIN pg_catalog.pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = parts[2] AND class.relkind IN ('r', 'p', 'f', 'v')
    WHERE $3::pg_catalog.text <> ''
), below (relation, privileges, referring, depth) AS (
    SELECT listed.relation, listed.privileges, listed.referring, 0
    FROM listed
    WHERE listed.referring IN ('direct', 'all', 'cascade')
    UNION
    -- All referring tables have the depth 1. So UNION removes tables that were found
    -- before, and the recursion ends when it finds no new table.
    SELECT reference.conrelid,
        CASE WHEN NOT ends.here THEN below.privileges WHEN reference.confdeltype IN ('n', 'd') THEN 'SELECT, UPDATE' ELSE 'SELECT' END,
        CASE WHEN ends.here THEN 'direct' ELSE below.referring END, 1
    FROM below
    JOIN pg_catalog.pg_constraint AS reference ON reference.contype = 'f' AND reference.confrelid = below.relation
    CROSS JOIN LATERAL (SELECT below.referring = 'cascade' AND reference.confdeltype <> 'c') AS ends (here)
    WHERE below.depth = 0 OR below.referring IN ('all', 'cascade')
), kept (relation) AS (
    SELECT listed.relation
    FROM listed
    WHERE listed.referring = 'undo' AND NOT EXISTS (SELECT FROM listed AS spared WHERE spared.relation = listed.relation AND spared.referring = 'spared')
    UNION
    SELECT further.relation
    FROM kept
    CROSS JOIN LATERAL (
        SELECT inherits.inhrelid FROM pg_catalog.pg_inherits AS inherits WHERE inherits.inhparent = kept.relation
        UNION ALL
        SELECT key.conrelid FROM pg_catalog.pg_constraint AS key WHERE key.contype = 'f' AND key.confrelid = kept.relation AND key.confdeltype = 'c'
    ) AS further (relation)
    WHERE NOT EXISTS (SELECT FROM listed WHERE listed.relation = further.relation AND listed.referring = 'spared')
), leaf (relation, privileges) AS (
    SELECT listed.relation, listed.privileges FROM listed WHERE listed.referring = ''
    UNION
    SELECT below.relation, below.privileges FROM below WHERE below.depth = 1
    UNION
    -- Undo inserts rows that a native key deleted, and updates rows that it changed.
    SELECT key.conrelid, CASE key.confdeltype WHEN 'c' THEN 'SELECT, INSERT' ELSE 'SELECT, UPDATE' END
    FROM kept
    JOIN pg_catalog.pg_constraint AS key ON key.contype = 'f' AND key.confrelid = kept.relation AND key.confdeltype IN ('c', 'n', 'd')
    WHERE key.confdeltype <> 'c' OR NOT EXISTS (SELECT FROM listed WHERE listed.relation = key.conrelid AND listed.referring = 'spared')
    UNION
    -- The query does not use pg_partition_tree, which waits for the locks of other
    -- sessions.
    SELECT part.oid, leaf.privileges
    FROM leaf
    JOIN pg_catalog.pg_inherits AS inherits ON inherits.inhparent = leaf.relation
    JOIN pg_catalog.pg_class AS part ON part.oid = inherits.inhrelid AND part.relispartition
), wanted (place, role, kind, oid, owner, object, privilege, columns) AS (
    SELECT 0, own.role, own.kind, coalesce(class.oid, proc.oid, namespace.oid), coalesce(class.relowner, proc.proowner, namespace.nspowner),
        CASE own.kind
            WHEN 'SCHEMA' THEN pg_catalog.format('%I', own.schema)
            WHEN 'FUNCTION' THEN pg_catalog.format('%I.%I(%s)', own.schema, own.name, pg_catalog.pg_get_function_identity_arguments(proc.oid))
            ELSE pg_catalog.format('%I.%I', own.schema, own.name)
        END,
        own.privilege, own.columns
    FROM pg_catalog.json_to_recordset($1::pg_catalog.json) AS own (role text, kind text, schema text, name text, privilege text, columns text[])
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = own.schema
    LEFT JOIN pg_catalog.pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = own.name AND own.kind IN ('TABLE', 'SEQUENCE')
    LEFT JOIN pg_catalog.pg_proc AS proc ON proc.pronamespace = namespace.oid AND proc.proname = own.name AND own.kind = 'FUNCTION'
    WHERE own.kind = 'SCHEMA' OR class.oid IS NOT NULL OR proc.oid IS NOT NULL
    UNION
    SELECT 2, $3, 'TABLE', class.oid, class.relowner, pg_catalog.format('%I.%I', namespace.nspname, class.relname), one.privilege, NULL
    FROM leaf
    JOIN pg_catalog.pg_class AS class ON class.oid = leaf.relation
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
    CROSS JOIN LATERAL pg_catalog.unnest(pg_catalog.string_to_array(leaf.privileges, ', ')) AS one (privilege)
    UNION
    SELECT 1, $3, 'SCHEMA', namespace.oid, namespace.nspowner, pg_catalog.format('%I', namespace.nspname), 'USAGE', NULL
    FROM leaf
    JOIN pg_catalog.pg_class AS class ON class.oid = leaf.relation
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
    UNION
    -- Statements qualify the operators and the type of a key with their schema, which may
    -- belong to an extension.
    SELECT 1, $3, 'SCHEMA', namespace.oid, namespace.nspowner, pg_catalog.format('%I', namespace.nspname), 'USAGE', NULL
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
    UNION
    -- The owners of the table and of its partitions create future partitions, so the
    -- default privileges of these roles count.
    SELECT 3, $3, 'TABLES', namespace.oid, made.relowner, pg_catalog.format('%I', namespace.nspname), one.privilege, NULL
    FROM leaf
    JOIN pg_catalog.pg_class AS whole ON whole.oid = leaf.relation AND whole.relkind = 'p'
    LEFT JOIN pg_catalog.pg_inherits AS inherits ON inherits.inhparent = whole.oid
    JOIN pg_catalog.pg_class AS made ON made.oid IN (whole.oid, inherits.inhrelid)
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = made.relnamespace
    CROSS JOIN LATERAL pg_catalog.unnest(pg_catalog.string_to_array(leaf.privileges, ', ')) AS one (privilege)
), missing AS (
    SELECT wanted.*, pg_catalog.concat(wanted.privilege, ' (' || (
        SELECT pg_catalog.string_agg(pg_catalog.quote_ident(name), ', ') FROM pg_catalog.unnest(wanted.columns) AS name
    ) || ')') AS text
    FROM wanted
    WHERE NOT CASE
        WHEN wanted.kind = 'SCHEMA' THEN pg_catalog.has_schema_privilege(wanted.role, wanted.oid, wanted.privilege)
        WHEN wanted.kind = 'SEQUENCE' THEN pg_catalog.has_sequence_privilege(wanted.role, wanted.oid, wanted.privilege)
        WHEN wanted.kind = 'FUNCTION' THEN pg_catalog.has_function_privilege(wanted.role, wanted.oid, wanted.privilege)
        WHEN wanted.kind = 'TABLES' THEN pg_catalog.pg_has_role(wanted.role, wanted.owner, 'USAGE') OR EXISTS (
            SELECT
            FROM pg_catalog.pg_default_acl AS standard
            CROSS JOIN LATERAL pg_catalog.aclexplode(standard.defaclacl) AS item
            WHERE standard.defaclrole = wanted.owner AND standard.defaclnamespace IN (0, wanted.oid) AND standard.defaclobjtype = 'r'
              AND item.privilege_type = wanted.privilege
              AND CASE WHEN item.grantee = 0 THEN true ELSE pg_catalog.pg_has_role(wanted.role, item.grantee, 'USAGE') END
        )
        WHEN wanted.columns IS NULL THEN pg_catalog.has_table_privilege(wanted.role, wanted.oid, wanted.privilege)
        ELSE (SELECT pg_catalog.bool_and(pg_catalog.has_column_privilege(wanted.role, wanted.oid, name, wanted.privilege)) FROM pg_catalog.unnest(wanted.columns) AS name)
    END
), lack (place, runner, optional, kind, object, privileges, role, statement) AS (
    SELECT pg_catalog.min(missing.place),
        CASE
            WHEN pg_catalog.pg_has_role(missing.owner, 'USAGE') THEN current_user
            -- The role pg_database_owner cannot log in. Its only member is the owner of
            -- the database.
            WHEN pg_catalog.pg_get_userbyid(missing.owner) = 'pg_database_owner'
                THEN (SELECT pg_catalog.pg_get_userbyid(own.datdba) FROM pg_catalog.pg_database AS own WHERE own.datname = pg_catalog.current_database())
            ELSE pg_catalog.pg_get_userbyid(missing.owner)
        END,
        false, pg_catalog.lower(missing.kind), missing.object, pg_catalog.string_agg(missing.text, ', ' ORDER BY missing.text), missing.role,
        CASE missing.kind
            WHEN 'TABLES' THEN pg_catalog.format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA %s GRANT %s ON TABLES TO %I',
                pg_catalog.pg_get_userbyid(missing.owner), missing.object, pg_catalog.string_agg(missing.text, ', ' ORDER BY missing.text), missing.role)
            ELSE pg_catalog.format('GRANT %s ON %s %s TO %I',
                pg_catalog.string_agg(missing.text, ', ' ORDER BY missing.text), missing.kind, missing.object, missing.role)
        END
    FROM missing
    GROUP BY missing.kind, missing.owner, missing.object, missing.role
    UNION ALL
    -- Sessions through a transaction pooler start with this path only if the role has the
    -- setting.
    SELECT 4, CASE WHEN granter.rolsuper OR granter.oid = worker.oid THEN granter.rolname ELSE worker.rolname END, true, 'role', worker.rolname::pg_catalog.text, 'search_path', worker.rolname,
        pg_catalog.format('ALTER ROLE %I SET search_path = pg_catalog, pg_temp', worker.rolname)
    FROM pg_catalog.pg_roles AS worker
    JOIN pg_catalog.pg_roles AS granter ON granter.rolname = current_user
    WHERE worker.rolname = $3 AND 'search_path=pg_catalog, pg_temp' <> ALL (coalesce(worker.rolconfig, '{}'))
    UNION ALL
    -- Without membership in pg_read_all_stats, the worker waits a fixed time for
    -- transactions of other roles.
    SELECT 5, CASE WHEN pg_catalog.pg_has_role('pg_read_all_stats', 'MEMBER WITH ADMIN OPTION') THEN current_user ELSE '' END, true, 'role', 'pg_read_all_stats', 'membership',
        worker.rolname, pg_catalog.format('GRANT pg_read_all_stats TO %I', worker.rolname)
    FROM pg_catalog.pg_roles AS worker
    WHERE worker.rolname = $3 AND NOT pg_catalog.pg_has_role(worker.oid, 'pg_read_all_stats', 'USAGE')
)
SELECT lack.runner::pg_catalog.text, lack.optional, lack.kind, lack.object, lack.privileges, pg_catalog.format('%I', lack.role), lack.statement || ';'
FROM lack
ORDER BY lack.optional, lack.runner <> current_user, lack.runner, lack.place, lack.kind <> 'schema', lack.kind, lack.object, lack.role;
