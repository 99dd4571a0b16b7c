-- Queues a user's deletion, in the caller's transaction, and changes the columns that
-- ghost_users.on_request names. Returns false if the user is queued already. Then nothing
-- changes, not even hard_delete.
--
-- With hard_delete, contributions are deleted instead of passing to the ghost user.
--
-- Raises SX010 if the user does not exist. Raises SX011 for the ghost user, and for a
-- user that the application's rule refuses. Raises SX013 with delete_groups, because
-- users of this table own no groups.
CREATE OR REPLACE FUNCTION "sexton".delete_user(
    user_id "{type}",
    initiator_id "{type}",
    hard_delete boolean DEFAULT false,
    delete_groups boolean DEFAULT false
)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
#variable_conflict use_variable
DECLARE
    -- account_id is the stored key of the user. Depending on the collation of the column,
    -- the argument user_id may be another text that is equal to it.
    account_id "{type}";
    previous text;
    reason text;
BEGIN
    -- The row lock serializes calls for the same user.
    SELECT account."{key}", {previous} INTO account_id, previous
    FROM "public"."{users}" AS account
    WHERE account."{key}" = delete_user.user_id
    FOR NO KEY UPDATE;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX010',
            MESSAGE = pg_catalog.format('delete user: there is no user %s', coalesce(delete_user.user_id::pg_catalog.text, 'NULL'));
    ELSIF account_id = '{ghost}' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX011',
            MESSAGE = pg_catalog.format('delete user %s: the ghost user cannot be deleted', account_id);
    ELSIF delete_user.delete_groups THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX013',
            MESSAGE = pg_catalog.format('delete user %s: delete_groups is set, but users of this table own no groups', account_id),
            HINT = 'Omit delete_groups.';
    END IF;
{rule}
    INSERT INTO "public".users_ghost_user_migrations
        (user_id, initiator_user_id, hard_delete, consume_after, created_at, updated_at, previous_state)
    VALUES
        (account_id, delete_user.initiator_id, coalesce(delete_user.hard_delete, false), pg_catalog.now(), pg_catalog.now(), pg_catalog.now(), previous)
    ON CONFLICT DO NOTHING;

    IF NOT FOUND THEN
        RETURN false;
    END IF;
{set}
    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".delete_user("{type}", "{type}", boolean, boolean) IS 'Sexton: queues the deletion of a user';
