-- Adapts Sexton's tables to the configured table of groups. Raises an error if groups of
-- another table are being destroyed. Changes the columns of Sexton's tables to the types
-- of the configured keys, and drops functions for other types, so that new functions can
-- be created. Raises an error if it would have to drop the application's own rule.
DO $sexton$
DECLARE
    described CONSTANT text := {described};
    moved CONSTANT boolean := pg_catalog.obj_description(pg_catalog.to_regclass('"sexton".groups')::pg_catalog.oid, 'pg_class') IS DISTINCT FROM described;
    rule CONSTANT text := '"sexton".may_remove_group("{user}", "{group}")';
    typed boolean;
    former regprocedure;
BEGIN
    -- A pooler may have dropped the search_path of the connection.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

    typed := NOT EXISTS (
        SELECT
        FROM pg_catalog.pg_attribute AS own
        WHERE own.attrelid = pg_catalog.to_regclass('"sexton".group_destructions')::pg_catalog.oid
          AND (own.attname = 'group_id' AND own.atttypid <> '{group}'::pg_catalog.regtype::pg_catalog.oid
            OR own.attname = 'user_id' AND own.atttypid <> '{user}'::pg_catalog.regtype::pg_catalog.oid)
    );

    IF typed AND NOT moved OR pg_catalog.to_regclass('"sexton".group_destructions') IS NULL THEN
        RETURN;
    END IF;

    LOCK TABLE "sexton".group_destructions, "sexton".group_deletion_failures IN ACCESS EXCLUSIVE MODE;

    IF EXISTS (SELECT FROM "sexton".group_destructions) OR EXISTS (SELECT FROM "sexton".group_deletion_failures) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_in_use',
            MESSAGE = 'groups of another table or key than configured are being destroyed',
            HINT = 'Restore the configuration of adjourned_groups.groups until these groups are destroyed.';
    END IF;

    IF described IS NULL THEN
        DROP VIEW IF EXISTS "sexton".groups, "sexton".group_deletion_schedules;
    END IF;

    IF typed THEN
        RETURN;
    END IF;

    IF pg_catalog.to_regprocedure(rule) IS NULL THEN
        SELECT function.oid INTO former
        FROM pg_catalog.pg_proc AS function
        WHERE function.pronamespace = 'sexton'::pg_catalog.regnamespace::pg_catalog.oid AND function.proname = 'may_remove_group'
          AND function.prosrc <> 'SELECT "sexton".default_may_remove_group(user_id, group_id)';

        IF former IS NOT NULL THEN
            RAISE EXCEPTION USING
                ERRCODE = 'object_in_use',
                MESSAGE = pg_catalog.format('%s is the application''s own rule, and the types of the keys change', former),
                HINT = pg_catalog.format('Create %s with that rule, or drop the old function to use Sexton''s rule.', rule);
        END IF;
    END IF;

    ALTER TABLE "sexton".group_destructions
        ALTER COLUMN group_id TYPE "{group}" USING NULL,
        ALTER COLUMN user_id TYPE "{user}" USING NULL,
        ALTER COLUMN user_id DROP NOT NULL;
    ALTER TABLE "sexton".group_deletion_failures ALTER COLUMN group_id TYPE "{group}" USING NULL;

    FOR former IN
        SELECT function.oid::pg_catalog.regprocedure
        FROM pg_catalog.pg_proc AS function
        WHERE function.pronamespace = 'sexton'::pg_catalog.regnamespace::pg_catalog.oid
          AND function.oid IS DISTINCT FROM pg_catalog.to_regprocedure(rule)::pg_catalog.oid
          AND function.proname IN ('cancel_group_deletion', 'decide_group_deletion', 'default_may_remove_group', 'delete_group_now', 'group_destroy_job',
              'group_destruction_above', 'may_remove_group', 'open_group_door', 'restore_group', 'schedule_group_deletion')
    LOOP
        EXECUTE pg_catalog.format('DROP FUNCTION %s', former);
    END LOOP;
END;
$sexton$
