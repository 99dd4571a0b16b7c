-- Wakes the worker of a job kind, if it sleeps, once a row of an application's table has become work for it.
--
-- As wake_inserted, without the test whether there is anything: the triggers' conditions have seen the row.
CREATE OR REPLACE FUNCTION "sexton"."wake_changed"()
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

    PERFORM pg_catalog.pg_notify('sexton_wake', TG_ARGV[0]);
    RETURN NULL;
END;
$sexton$;
