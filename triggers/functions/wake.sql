-- Notifies the idle workers of a job kind when rows have been inserted into its deletion
-- table, or when a row of an application's table has become work.
--
-- A commit that notifies takes a lock of the server and holds it while its WAL is
-- flushed, so such commits run one after the other. So a writer notifies only if no
-- worker is awake. An awake worker holds the awake lock, an exclusive session advisory
-- lock, and queries for work anyway. The trigger's condition tests the lock, so this
-- function is called only while no worker is awake.
--
-- The order of steps closes the race with a worker that stops being awake. The writer
-- first writes its rows and then tests the lock. The worker first releases the lock and
-- then waits for every transaction that holds a lock on the table. So the worker waits
-- for each session that found the lock taken, and every other session has notified. The
-- test reads no row, so the test is correct at every isolation level.
--
-- A transaction that has notified cannot be prepared. Sessions that use PREPARE
-- TRANSACTION can SET sexton.notify = off. Their rows then wait for the next tick, unless
-- a worker is awake. A rollback, also to a savepoint, reverts rows and notification.
-- Postgres drops duplicate notifications of a transaction. A server in recovery writes
-- nothing, so it wakes no worker. Locks of the primary do not exist after a promotion, so
-- writers notify until a worker is awake there.
CREATE OR REPLACE FUNCTION "sexton"."track_function"()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
#variable_conflict use_variable
BEGIN
    IF pg_catalog.current_setting('sexton.notify', true) = 'off' THEN
        RETURN NULL;
    END IF;

    -- The trigger also fires for a statement without rows.
    IF TG_LEVEL = 'STATEMENT' THEN
        IF NOT EXISTS (SELECT FROM sexton_added) THEN
            RETURN NULL;
        END IF;
    END IF;

    PERFORM pg_catalog.pg_notify('sexton_wake', TG_ARGV[0]);
    RETURN NULL;
END;
$sexton$;
