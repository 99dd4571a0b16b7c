-- Begins a batch: sets the timeouts of the transaction and checks that the caller still
-- holds its lease.
--
-- Raises SX001 if the lease has passed to another holder, or if the slot does not exist.
-- The function locks the slot until the batch ends. A new holder must first raise the
-- token in all slots, so it waits for a batch that is about to commit. If a batch hangs,
-- the new holder finds its session by the session's name, which contains the token, and
-- terminates it. Otherwise idle_in_transaction_session_timeout terminates the session
-- after 10 s.
--
-- In a READ ONLY transaction the function only compares the token, because such a
-- transaction changes nothing and a row lock is a write.
--
-- durable = false lets the commit return before its WAL is on disk. That is safe if
-- children and tombstones are in this database, because a crash reverts the changes of
-- both.
CREATE OR REPLACE FUNCTION "sexton".begin_batch(
    fence_key text,
    fence_slot integer,
    fence_token bigint,
    statement_timeout_ms integer,
    lock_timeout_ms integer,
    durable boolean
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    found_token bigint;
BEGIN
    -- The timeouts are set first, because a new holder may have locked the fence.
    PERFORM
        pg_catalog.set_config('statement_timeout', statement_timeout_ms::pg_catalog.text, true),
        pg_catalog.set_config('lock_timeout', lock_timeout_ms::pg_catalog.text, true),
        pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true),
        -- Row security policies would hide rows, and hidden rows would count as deleted.
        -- If row_security is off, Postgres raises an error instead.
        pg_catalog.set_config('row_security', 'off', true),
        pg_catalog.set_config('application_name', "sexton".session_name(fence_key) || '#' || fence_token, true),
        pg_catalog.set_config('synchronous_commit', CASE WHEN durable THEN "sexton".commit_mode(true) ELSE 'off' END, true);

    IF pg_catalog.current_setting('transaction_read_only')::boolean THEN
        SELECT fences.token INTO found_token
        FROM "sexton".fences
        WHERE fences.key = fence_key AND fences.slot = fence_slot;
    ELSE
        SELECT fences.token INTO found_token
        FROM "sexton".fences
        WHERE fences.key = fence_key AND fences.slot = fence_slot
        FOR SHARE;
    END IF;

    IF found_token IS DISTINCT FROM fence_token THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX001',
            MESSAGE = pg_catalog.format('lease lost: %s', fence_key),
            DETAIL = pg_catalog.format('The batch has token %s, but the fence has token %s in slot %s.',
                coalesce(fence_token::pg_catalog.text, 'none'), coalesce(found_token::pg_catalog.text, 'none'), fence_slot),
            HINT = 'Another holder has the lease. This batch is rolled back.';
    END IF;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".begin_batch(text, integer, bigint, integer, integer, boolean) IS
    'Sexton: sets the timeouts of a batch and checks its lease';
