-- Inserts jobs for River by SQL, for services in any language. The rows are equal to the
-- rows of River's own client, so this function and the client detect each other's
-- duplicates. The unique key is the SHA-256 of kind and arguments as Go's encoding/json
-- writes them.
--
-- Ensures that a job of this kind and these arguments waits or runs, and returns its id.
-- It inserts a new job only if there is no such job. An earlier run_at moves a waiting
-- job forward.
--
-- Raises 22023 if kind, arguments or time are invalid, with the valid values in the hint.
--
-- Call this function in short transactions. It waits for an open transaction that has
-- enqueued the same job. At REPEATABLE READ and above it may raise 40001 if another
-- session changed the job. Then nothing was enqueued, and the caller must retry.
--
-- The function does not lock a running job, because River writes to the job's row when
-- the job ends. So a call just before an equal job ends may return that job instead of
-- inserting one. Work that must not be missed belongs in a deletion table, whose trigger
-- wakes the worker.
--
-- SET sexton.notify = off in transactions that will be prepared, because PREPARE
-- TRANSACTION refuses transactions that have sent a notification. River then finds the
-- job at its next poll.
CREATE OR REPLACE FUNCTION "sexton".enqueue(kind text, args jsonb DEFAULT '{}', run_at timestamptz DEFAULT NULL)
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
    key bytea;
    due CONSTANT boolean := run_at IS NULL OR run_at <= pg_catalog.clock_timestamp();
    job_id bigint;
    job_is_late boolean;
    job_is_ours boolean := false;
    row_key jsonb;
    most_waiting CONSTANT integer := 10000;
BEGIN
    SELECT k.* INTO job_kind FROM "sexton".job_kinds AS k WHERE k.kind = enqueue.kind;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = '22023',
            MESSAGE = pg_catalog.format('enqueue: there is no kind %L', kind),
            HINT = coalesce(
                (SELECT 'Kinds: ' || pg_catalog.string_agg(k.kind, ', ' ORDER BY k.kind COLLATE "C") || '.' FROM "sexton".job_kinds AS k),
                'There are no kinds; run "sexton migrate up".');
    ELSIF job_kind.cron AND run_at IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = '22023',
            MESSAGE = pg_catalog.format('enqueue %s: this kind runs on a schedule and accepts no run_at', kind),
            HINT = 'Omit run_at to run it now.';
    ELSIF run_at >= pg_catalog.make_timestamptz(10000, 1, 1, 0, 0, 0, 'UTC') THEN
        -- River's client cannot read a time from the year 10000 on, or infinity.
        RAISE EXCEPTION USING
            ERRCODE = '22023',
            MESSAGE = pg_catalog.format('enqueue %s: run_at must be before the year 10000, but is %s', kind, run_at),
            HINT = 'Omit run_at to run it now.';
    END IF;

    encoded := "sexton".job_args(kind, job_kind.args, job_kind.defaults, args);

    IF job_kind.databases IS NOT NULL AND NOT encoded::pg_catalog.jsonb ->> 'database' = ANY (job_kind.databases) THEN
        RAISE EXCEPTION USING
            ERRCODE = '22023',
            MESSAGE = pg_catalog.format('enqueue %s: there is no database "%s"', kind, encoded::pg_catalog.jsonb ->> 'database'),
            HINT = pg_catalog.format('Databases: %s. After a change of the configuration run "sexton migrate up".',
                pg_catalog.array_to_string(job_kind.databases, ', '));
    END IF;

    IF job_kind.row_table IS NOT NULL THEN
        EXECUTE pg_catalog.format(
            'SELECT pg_catalog.to_jsonb(row.%2$I) FROM %3$s%1$I AS row WHERE row.%2$I = %4$L', job_kind.row_table, job_kind.row_column, '"public".',
            encoded::pg_catalog.jsonb ->> job_kind.row_argument)
        INTO row_key;

        IF row_key IS NULL THEN
            RAISE EXCEPTION USING
                ERRCODE = '22023',
                MESSAGE = pg_catalog.format('enqueue %s: there is no row of %s with the %s of %s', kind, job_kind.row_table, job_kind.row_column,
                    encoded::pg_catalog.jsonb ->> job_kind.row_argument),
                HINT = 'A row that another open transaction has inserted does not count.';
        ELSIF job_kind.args ->> job_kind.row_argument = 'key' THEN
            -- Jobs and leases are unique by the key's text. A key may have several
            -- spellings, such as a uuid in capital letters, so the job gets the stored
            -- spelling.
            encoded := "sexton".job_args(kind, job_kind.args, job_kind.defaults, args || pg_catalog.jsonb_build_object(job_kind.row_argument, row_key));
        END IF;
    END IF;

    key := pg_catalog.sha256(pg_catalog.convert_to('&kind=' || kind || '&args=' || encoded, 'UTF8'));

    -- A conflicting job may end before it is read. The function gives up after ten such
    -- jobs.
    FOR attempt IN 1..10 LOOP
        -- ON CONFLICT DO UPDATE would lock the row of the existing job.
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
            key,
            unfinished
        )
        ON CONFLICT (unique_key)
            WHERE unique_key IS NOT NULL
                AND unique_states IS NOT NULL
                AND "sexton".river_job_state_in_bitmask(unique_states, state)
        DO NOTHING
        RETURNING j.id INTO job_id;

        job_is_ours := FOUND;
        EXIT WHEN job_is_ours;

        SELECT j.id, j.state IN ('scheduled', 'retryable') AND (due OR j.scheduled_at > run_at)
        INTO job_id, job_is_late
        FROM "sexton".river_job AS j
        WHERE j.unique_key = key
            AND j.unique_states IS NOT NULL
            AND "sexton".river_job_state_in_bitmask(j.unique_states, j.state);

        CONTINUE WHEN NOT FOUND;
        EXIT WHEN NOT job_is_late;

        BEGIN
            UPDATE "sexton".river_job AS j
            SET
                scheduled_at = CASE WHEN due THEN least(j.scheduled_at, pg_catalog.now()) ELSE run_at END,
                state = CASE WHEN due THEN 'available' ELSE j.state END
            WHERE j.id = job_id
                AND j.state IN ('scheduled', 'retryable')
                AND (due OR j.scheduled_at > run_at);

            IF NOT FOUND THEN
                -- The job has begun to run. The UPDATE may have locked its row, and only
                -- a rollback of the statement unlocks it.
                RAISE SQLSTATE 'SX003';
            END IF;

            job_is_ours := true;
            EXIT;
        EXCEPTION
            WHEN SQLSTATE 'SX003' THEN
                job_id := NULL;
        END;
    END LOOP;

    IF job_id IS NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = '40001',
            MESSAGE = pg_catalog.format('enqueue %s: no job after 10 attempts, because each time an equal job ended before it could be read', kind),
            HINT = 'Retry.';
    END IF;

    -- Equal jobs are never inserted twice, so many waiting jobs mean that a caller
    -- invents arguments. Roles that may write to River's table are not limited.
    IF job_is_ours AND NOT job_is_late IS TRUE AND job_kind.args <> '{}'
        AND NOT pg_catalog.has_table_privilege(session_user, '"sexton".river_job'::pg_catalog.regclass, 'INSERT')
        AND (
            SELECT pg_catalog.count(*)
            FROM (
                SELECT
                FROM "sexton".river_job AS j
                WHERE j.state = ANY ('{available,pending,retryable,scheduled}'::"sexton".river_job_state[])
                    AND j.queue = job_kind.queue
                LIMIT most_waiting + 1
            ) AS waiting
        ) > most_waiting
    THEN
        RAISE EXCEPTION USING
            ERRCODE = '53400',
            MESSAGE = pg_catalog.format('enqueue %s: %s jobs of this kind are waiting', kind, most_waiting),
            HINT = 'Retry when some of them are done. "sexton status" shows why they wait.';
    END IF;

    -- Channel and payload are the same as in River's client, so that Postgres drops
    -- duplicate notifications.
    IF job_is_ours AND due AND pg_catalog.current_setting('sexton.notify', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_catalog.pg_notify(
            pg_catalog.array_to_string(pg_catalog.parse_ident('"sexton".river_insert'), '.'),
            pg_catalog.format('{"queue": %s}', pg_catalog.to_json(job_kind.queue)));
    END IF;

    RETURN job_id;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".enqueue(text, jsonb, timestamp with time zone) IS
    'Sexton: ensures that one job of this kind and arguments runs now or at run_at; returns its id';
