-- Takes a user out of the queue again and gives it the state that it had before, in the caller's transaction, on behalf of
-- a user that the event user_deletion_cancelled names. Returns false where the user is not in the queue. A state that the
-- application has set meanwhile stays, and so do marks of groups that were scheduled along.
--
-- Raises SX010 for a user that does not exist, SX017 where rows of the user have been changed already.
CREATE OR REPLACE FUNCTION "sexton".cancel_user_deletion(user_id bigint, by_user_id bigint)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    job record;
BEGIN
    PERFORM FROM "public".users WHERE users.id = cancel_user_deletion.user_id FOR NO KEY UPDATE;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX010',
            MESSAGE = pg_catalog.format('cancel the deletion: there is no user %s', coalesce(cancel_user_deletion.user_id::pg_catalog.text, 'NULL'));
    END IF;

    -- Each batch of a worker locks this row before it changes the first of the user's rows, and counts them in it.
    SELECT queued.id, queued.previous_state, queued.moved_rows, queued.deleted_rows, queued.nullified_rows INTO job
    FROM "public".users_ghost_user_migrations AS queued
    WHERE queued.user_id = cancel_user_deletion.user_id
    FOR UPDATE;

    IF NOT FOUND THEN
        RETURN false;
    ELSIF job.moved_rows + job.deleted_rows + job.nullified_rows > 0 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX017',
            MESSAGE = pg_catalog.format('cancel the deletion of user %s: it has begun, with %s rows moved, %s deleted and %s nullified',
                cancel_user_deletion.user_id, job.moved_rows, job.deleted_rows, job.nullified_rows),
            HINT = 'What is gone cannot be brought back; let the deletion end, or restore the user from a backup.';
    END IF;

    DELETE FROM "public".users_ghost_user_migrations AS queued WHERE queued.id = job.id;

    IF job.previous_state IS NOT NULL THEN
        -- As literals: the column may be of an enumerated type.
        EXECUTE pg_catalog.format('UPDATE "public".users SET state = %L WHERE users.id = $1 AND users.state = %L', job.previous_state, 'blocked')
        USING cancel_user_deletion.user_id;
    END IF;

    INSERT INTO "sexton".events (kind, payload) VALUES
        ('user_deletion_cancelled', pg_catalog.jsonb_build_object(
            'user_id', cancel_user_deletion.user_id, 'by_user_id', cancel_user_deletion.by_user_id));

    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".cancel_user_deletion(bigint, bigint) IS 'Sexton: takes back the deletion of a user that has not begun';
