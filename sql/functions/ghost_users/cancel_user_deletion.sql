-- Takes a user out of the queue again, in the caller's transaction, on behalf of a user that the event user_deletion_cancelled
-- names. Columns that delete_user has set get their values back, unless the application has changed one of them; marks of groups that were
-- scheduled along stay. Returns false if the user is not in the queue.
--
-- Raises SX010 for a user that does not exist, SX017 if rows of the user have been changed already.
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

    -- Each batch of a worker locks this row before it changes the first of the user's rows, and counts them in it.
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
            HINT = 'What is gone cannot be brought back; let the deletion end, or restore the user from a backup.';
    END IF;

    DELETE FROM "public".users_ghost_user_migrations AS queued WHERE queued.id = job.id;
{reset}
    INSERT INTO "sexton".events (kind, payload) VALUES
        ('user_deletion_cancelled', pg_catalog.jsonb_build_object('user_id', account_id, 'by_user_id', cancel_user_deletion.by_user_id));

    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".cancel_user_deletion("{type}", "{type}") IS 'Sexton: takes back the deletion of a user that has not begun';
