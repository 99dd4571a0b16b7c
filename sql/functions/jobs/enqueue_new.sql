-- Inserts a job for River and returns its id. If an equal job waits or runs, it returns
-- NULL and changes nothing. Some job kinds insert jobs of another kind and count them in
-- the same transaction. They call this function, because enqueue does not report whether
-- a job is new.
--
-- The function waits for an open transaction that has inserted an equal job. Raises 22023
-- if kind or arguments are invalid.
CREATE OR REPLACE FUNCTION "sexton".enqueue_new(kind text, args jsonb DEFAULT '{}', run_at timestamptz DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    -- The bits are the states available, pending, running, retryable and scheduled; see
    -- river_job_state_in_bitmask.
    unfinished CONSTANT bit(8) := B'11110001';
    job_kind "sexton".job_kinds;
    encoded text;
    due CONSTANT boolean := run_at IS NULL OR run_at <= pg_catalog.clock_timestamp();
    job_id bigint;
BEGIN
    SELECT k.* INTO job_kind FROM "sexton".job_kinds AS k WHERE k.kind = enqueue_new.kind;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = '22023',
            MESSAGE = pg_catalog.format('enqueue: there is no kind %L', kind),
            HINT = 'Run "sexton migrate up".';
    END IF;

    encoded := "sexton".job_args(kind, job_kind.args, job_kind.defaults, args);

    INSERT INTO "sexton".river_job AS j
        (args, kind, max_attempts, queue, scheduled_at, state, tags, unique_key, unique_states)
    VALUES (
        encoded::pg_catalog.jsonb,
        job_kind.kind,
        job_kind.max_attempts,
        job_kind.queue,
        CASE WHEN due THEN pg_catalog.now() ELSE run_at END,
        CASE WHEN due THEN 'available' ELSE 'scheduled' END::"sexton".river_job_state,
        '{}',
        pg_catalog.sha256(pg_catalog.convert_to('&kind=' || kind || '&args=' || encoded, 'UTF8')),
        unfinished
    )
    ON CONFLICT (unique_key)
        WHERE unique_key IS NOT NULL
            AND unique_states IS NOT NULL
            AND "sexton".river_job_state_in_bitmask(unique_states, state)
    DO NOTHING
    RETURNING j.id INTO job_id;

    -- Channel and payload are the same as in River's client, so that Postgres drops
    -- duplicate notifications.
    IF job_id IS NOT NULL AND due AND pg_catalog.current_setting('sexton.notify', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_catalog.pg_notify(
            pg_catalog.array_to_string(pg_catalog.parse_ident('"sexton".river_insert'), '.'),
            pg_catalog.format('{"queue": %s}', pg_catalog.to_json(job_kind.queue)));
    END IF;

    RETURN job_id;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".enqueue_new(text, jsonb, timestamp with time zone) IS
    'Sexton: inserts a new job to run now or at run_at; returns its id, or NULL if an equal one waits or runs';
