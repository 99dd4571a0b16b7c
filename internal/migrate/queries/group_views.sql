-- Creates views of the configured table with GitLab's columns. If a group has a period of
-- its own, the view moves the group's mark by the difference to the configured period. If
-- a column gets another type, the views are created again and lose their grants. The
-- block also drops the function that only GitLab's groups need.
DO $sexton$
BEGIN
    -- A pooler may have dropped the search_path of the connection.
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
                -- CREATE OR REPLACE VIEW cannot change the type of a column.
                DROP VIEW IF EXISTS "sexton".groups, "sexton".group_deletion_schedules;
        END;
    END LOOP;

    COMMENT ON VIEW "sexton".groups IS {described};
END;
$sexton$
