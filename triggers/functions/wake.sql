-- Wakes the worker of a job kind, if it sleeps, once rows have come into its deletion table, or a row of an application's table has become work.
--
-- A commit that notifies takes a lock of the whole server and holds it while its WAL is flushed, so that
-- such commits go one by one. Hence only a sleeping worker is notified: while awake it holds the awake lock,
-- a session advisory lock, exclusively, and looks for work anyway. The trigger's condition tests the lock, so
-- this function is called only while no worker is awake.
--
-- The order closes the race with a worker that goes to sleep: rows first, then the test, while the worker
-- first drops the lock and then waits for every transaction that holds a lock on the table. A session that found
-- the lock taken is waited for; a session that did not has notified. The test looks at no row, so it is right at
-- every isolation level.
--
-- A transaction that has notified cannot be prepared. SET sexton.notify = off is for sessions that use
-- PREPARE TRANSACTION; their rows wait for the next tick, unless the worker is awake. A rollback, also one to
-- a savepoint, takes rows and notification along; equal notifications of one transaction fold. A server in
-- recovery writes nothing, so it wakes no worker, and no lock of its primary outlives a promotion: writers
-- notify until a worker is awake there.
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

    -- For a statement without rows the trigger fires, too.
    IF TG_LEVEL = 'STATEMENT' THEN
        IF NOT EXISTS (SELECT FROM sexton_added) THEN
            RETURN NULL;
        END IF;
    END IF;

    PERFORM pg_catalog.pg_notify('sexton_wake', TG_ARGV[0]);
    RETURN NULL;
END;
$sexton$;
