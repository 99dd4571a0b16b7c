-- The running workers. Each refreshes its row every 5 s; one that has been silent for 15 s counts as dead,
-- and others take over its jobs.
CREATE TABLE "sexton".clients (
    client_id text PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    started_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    -- What the client polls for, as kind/database, because notifications do not reach it.
    deaf text[] NOT NULL DEFAULT '{}',
    -- What does not fit the database and is held, as kind/database: reason.
    held text[] NOT NULL DEFAULT '{}',
    -- The generations of definitions that it works with, by the keys of their leases.
    digests jsonb NOT NULL DEFAULT '{}',
    -- The schedules that it would follow as the leader, as kind/database.
    schedules text[] NOT NULL DEFAULT '{}',
    -- A pass in the foreground, which takes no jobs: its row tells that its leases are those of a living process.
    foreground boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".clients IS 'Sexton: running workers and foreground passes, and when each was last seen';

-- The last tick of each schedule, written with the job that it inserted: a tick that came while no worker ran
-- is known by it and made up for.
CREATE TABLE "sexton".schedules (
    kind text NOT NULL,
    database text NOT NULL,
    last_tick timestamptz NOT NULL,
    -- False as long as last_tick is when the schedule was first seen, from which its ticks count.
    ticked boolean NOT NULL DEFAULT true,
    PRIMARY KEY (kind, database)
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".schedules IS 'Sexton: last tick of each schedule';

-- What enqueue accepts. "sexton migrate up" writes it from the program's list of jobs.
CREATE TABLE "sexton".job_kinds (
    kind text PRIMARY KEY,
    queue text NOT NULL,
    -- The arguments by name, each with its type: text, bigint or boolean.
    args jsonb NOT NULL,
    -- The values of arguments that may be left out, by name.
    defaults jsonb NOT NULL,
    -- Whether the kind runs on a schedule; enqueue then takes no time.
    cron boolean NOT NULL,
    max_attempts smallint NOT NULL,
    -- The application's table of which an argument names a row, with its column and that argument; NULL where none does.
    row_table text,
    row_column text,
    row_argument text,
    CHECK (pg_catalog.jsonb_typeof(args) = 'object' AND pg_catalog.jsonb_typeof(defaults) = 'object')
);

COMMENT ON TABLE "sexton".job_kinds IS 'Sexton: the jobs that enqueue accepts';

-- What the digests in fences stand for: one line per definition, so that an installation can say which are new.
CREATE TABLE "sexton".generations (
    kind text PRIMARY KEY,
    digest text NOT NULL,
    entries text[] NOT NULL,
    installed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

COMMENT ON TABLE "sexton".generations IS 'Sexton: the definitions that were installed last';

INSERT INTO "sexton".objects (kind, identity, component) VALUES
    ('table', '"sexton".generations', 'jobs'),
    ('table', '"sexton".clients', 'jobs'),
    ('table', '"sexton".schedules', 'jobs'),
    ('table', '"sexton".job_kinds', 'jobs');
