-- Views of the configured table with GitLab's columns. A mark is moved by what the group's own period exceeds the configured one. They
-- replace views of another table, and keep their grants. What only GitLab's groups need is removed.
DO $sexton$
DECLARE
    statement text;
    grants text[];
BEGIN
    -- A pooler drops the path that the connection asks for.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

    DROP FUNCTION IF EXISTS "sexton".group_schedule_lost() CASCADE;

    ALTER TABLE "sexton".group_destructions ALTER COLUMN user_id DROP NOT NULL;

    FOR attempt IN 1..2 LOOP
        BEGIN
            CREATE OR REPLACE VIEW "sexton".groups AS
            SELECT {id} AS id, {parent} AS parent_id, {path} AS name, {path} AS path, {marked} AS marked_for_deletion_on
            FROM {table} AS own;

            CREATE OR REPLACE VIEW "sexton".group_deletion_schedules AS
            SELECT {id} AS group_id, {by} AS user_id, {marked} AS marked_for_deletion_on
            FROM {table} AS own
            WHERE own.{marked_on} IS NOT NULL;

            EXIT;
        EXCEPTION
            WHEN invalid_table_definition THEN
                -- A column has another type.
                grants := ARRAY(
                    SELECT pg_catalog.format('GRANT %s ON %s TO %s%s', entry.privilege_type, class.oid::pg_catalog.regclass,
                        CASE entry.grantee WHEN 0 THEN 'PUBLIC' ELSE entry.grantee::pg_catalog.regrole::pg_catalog.text END,
                        CASE WHEN entry.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
                    FROM pg_catalog.pg_class AS class
                    CROSS JOIN LATERAL pg_catalog.aclexplode(class.relacl) AS entry
                    WHERE class.oid IN (pg_catalog.to_regclass('"sexton".groups'), pg_catalog.to_regclass('"sexton".group_deletion_schedules'))
                      AND entry.grantee <> class.relowner
                );
                DROP VIEW IF EXISTS "sexton".groups, "sexton".group_deletion_schedules;
        END;
    END LOOP;

    FOREACH statement IN ARRAY coalesce(grants, '{}') LOOP
        EXECUTE statement;
    END LOOP;

    COMMENT ON VIEW "sexton".groups IS {described};
END;
$sexton$
