-- Removes a user from the queue, in the caller's transaction, and writes the event
-- user_deletion_cancelled with by_user_id. Columns that delete_user has changed get their
-- former values, unless the application has changed one of them since. Groups that
-- delete_user has scheduled stay scheduled. Returns false if the user is not in the
-- queue.
--
-- Raises SX010 if the user does not exist and SX017 if the deletion has already changed
-- rows.
CREATE OR REPLACE FUNCTION "sexton".cancel_user_deletion(user_id "{type}", by_user_id "{type}")
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
#variable_conflict use_variable
DECLARE
    account_id "{type}";
    job record;
BEGIN
    SELECT account."{key}" INTO account_id
    FROM "public"."{users}" AS account
    WHERE account."{key}" = cancel_user_deletion.user_id
    FOR NO KEY UPDATE;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX010',
            MESSAGE = pg_catalog.format('cancel the deletion: there is no user %s', coalesce(cancel_user_deletion.user_id::pg_catalog.text, 'NULL'));
    END IF;

    -- Each batch of a worker locks the user's row in the queue before it changes rows of
    -- the user. It also counts the changed rows in that row.
    SELECT queued.id, queued.previous_state, queued.moved_rows, queued.deleted_rows, queued.nullified_rows INTO job
    FROM "public".users_ghost_user_migrations AS queued
    WHERE queued.user_id = account_id
    FOR UPDATE;

    IF NOT FOUND THEN
        RETURN false;
    ELSIF job.moved_rows + job.deleted_rows + job.nullified_rows > 0 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX017',
            MESSAGE = pg_catalog.format('cancel the deletion of user %s: it has begun, with %s rows moved, %s deleted and %s nullified',
                account_id, job.moved_rows, job.deleted_rows, job.nullified_rows),
            HINT = 'Deleted rows cannot be restored. Let the deletion finish, or restore the user from a backup.';
    END IF;

    DELETE FROM "public".users_ghost_user_migrations AS queued WHERE queued.id = job.id;
{reset}
    INSERT INTO "sexton".events (kind, payload) VALUES
        ('user_deletion_cancelled', pg_catalog.jsonb_build_object('user_id', account_id, 'by_user_id', cancel_user_deletion.by_user_id));

    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".cancel_user_deletion("{type}", "{type}") IS 'Sexton: cancels the deletion of a user that has not begun';
