-- Makes the queue of users refer to the configured table, and drops functions for another
-- type of key, so that new functions can be created. The block does not change a queue
-- that the application created.
DO $sexton$
DECLARE
    queue CONSTANT regclass := pg_catalog.to_regclass('"public".users_ghost_user_migrations');
    parent CONSTANT regclass := '"public"."{users}"';
    object text;
    former regprocedure;
BEGIN
    -- A pooler may have dropped the search_path of the connection.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

    IF pg_catalog.starts_with(pg_catalog.obj_description(queue, 'pg_class'), 'Sexton:') AND NOT EXISTS (
        SELECT
        FROM pg_catalog.pg_constraint AS reference
        JOIN pg_catalog.pg_attribute AS own ON own.attrelid = queue::pg_catalog.oid AND own.attname = 'user_id'
            AND own.attnum = reference.conkey[1] AND pg_catalog.cardinality(reference.conkey) = 1
        JOIN pg_catalog.pg_attribute AS target
            ON target.attrelid = parent::pg_catalog.oid AND target.attname = '{key}' AND target.attnum = reference.confkey[1]
        WHERE reference.conrelid = queue::pg_catalog.oid AND reference.contype = 'f' AND reference.confrelid = parent::pg_catalog.oid
          AND own.atttypid = '{type}'::pg_catalog.regtype::pg_catalog.oid
    ) THEN
        LOCK TABLE "public".users_ghost_user_migrations IN ACCESS EXCLUSIVE MODE;

        IF EXISTS (SELECT FROM "public".users_ghost_user_migrations) THEN
            RAISE EXCEPTION USING
                ERRCODE = 'object_in_use',
                MESSAGE = pg_catalog.format('%s still has users, and must refer to %s', queue, parent),
                HINT = 'Restore the configuration of ghost_users.users until these users are deleted, or cancel their deletion.';
        END IF;

        FOR object IN
            SELECT reference.conname
            FROM pg_catalog.pg_constraint AS reference
            JOIN pg_catalog.pg_attribute AS own ON own.attrelid = queue::pg_catalog.oid AND own.attname = 'user_id'
                AND own.attnum = reference.conkey[1] AND pg_catalog.cardinality(reference.conkey) = 1
            WHERE reference.conrelid = queue::pg_catalog.oid AND reference.contype = 'f'
        LOOP
            EXECUTE pg_catalog.format('ALTER TABLE %s DROP CONSTRAINT %I', queue, object);
        END LOOP;

        ALTER TABLE "public".users_ghost_user_migrations
            ALTER COLUMN user_id TYPE "{type}" USING NULL,
            ALTER COLUMN initiator_user_id TYPE "{type}" USING NULL,
            ADD FOREIGN KEY (user_id) REFERENCES "public"."{users}" ("{key}") ON DELETE CASCADE;
    END IF;

    FOR former IN
        SELECT function.oid::pg_catalog.regprocedure
        FROM pg_catalog.pg_proc AS function
        WHERE function.pronamespace = 'sexton'::pg_catalog.regnamespace::pg_catalog.oid
          AND function.proname IN ('ghost_user', 'delete_user', 'cancel_user_deletion')
          AND '{type}'::pg_catalog.regtype::pg_catalog.oid <> CASE function.proname WHEN 'ghost_user' THEN function.prorettype ELSE function.proargtypes[0] END
    LOOP
        EXECUTE pg_catalog.format('DROP FUNCTION %s', former);
    END LOOP;
END;
$sexton$
