-- Who may work on what. The token grows by one with each acquisition and is never given out twice, so a
-- released lease keeps its row.
CREATE TABLE IF NOT EXISTS "sexton".leases (
    key text PRIMARY KEY,
    token bigint NOT NULL,
    holder text NOT NULL,
    -- With the token and the holder it identifies an acquisition: a crash of the server can revert a token, which is then granted again.
    acquired_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".leases IS 'Sexton: who works on what, and until when';

-- One row per run of a job; folded counts the runs without any change that share a row. A run whose
-- process died has no end.
CREATE TABLE IF NOT EXISTS "sexton".runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    database text NOT NULL,
    holder text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    ended_at timestamptz,
    outcome text CHECK (outcome IN ('done', 'over_limit', 'skipped', 'failed')),
    -- Whether anything was done; runs that changed nothing share a row per minute.
    changed boolean NOT NULL DEFAULT false,
    -- Not jsonb, which is half as long again: each run writes it, and it is read whole.
    stats json NOT NULL DEFAULT '{}',
    error text,
    -- Why a run that had work to do got nothing done; NULL for all others.
    held text,
    folded integer NOT NULL DEFAULT 1 CHECK (folded >= 1),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
);

-- The last runs of a kind in a database. The identity says in which order all runs began, near enough: each index is a record of the log per run.
CREATE INDEX IF NOT EXISTS runs_kind_database_started_at_idx ON "sexton".runs (kind, database, started_at DESC, id DESC);

COMMENT ON TABLE "sexton".runs IS 'Sexton: history of job runs, kept 7 days';

-- The running workers. Each refreshes its row every 5 s; one that has been silent for 15 s counts as dead,
-- and others take over its jobs.
CREATE TABLE IF NOT EXISTS "sexton".clients (
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
    foreground boolean NOT NULL DEFAULT false,
    -- Why the worker refused a change of its files; empty if it has read them as they are.
    reload_error text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".clients IS 'Sexton: running workers and foreground passes, and when each was last seen';

-- The last tick of each schedule, written with the job that it inserted: a tick that came while no worker ran
-- is known by it and made up for.
CREATE TABLE IF NOT EXISTS "sexton".schedules (
    kind text NOT NULL,
    database text NOT NULL,
    last_tick timestamptz NOT NULL,
    -- False as long as last_tick is when the schedule was first seen, from which its ticks count.
    ticked boolean NOT NULL DEFAULT true,
    PRIMARY KEY (kind, database)
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".schedules IS 'Sexton: last tick of each schedule';

-- What enqueue accepts. "sexton migrate up" writes it from the program's list of jobs.
CREATE TABLE IF NOT EXISTS "sexton".job_kinds (
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
    -- The values that the argument database may have; NULL if the kind has no such argument.
    databases text[],
    CHECK (pg_catalog.jsonb_typeof(args) = 'object' AND pg_catalog.jsonb_typeof(defaults) = 'object')
);

COMMENT ON TABLE "sexton".job_kinds IS 'Sexton: the jobs that enqueue accepts';

-- What the digests in fences stand for: one line per definition, so that an installation can say which are new.
CREATE TABLE IF NOT EXISTS "sexton".generations (
    kind text PRIMARY KEY,
    digest text NOT NULL,
    entries text[] NOT NULL,
    installed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

COMMENT ON TABLE "sexton".generations IS 'Sexton: the definitions that were installed last';

-- The backlog over time, for the page. One worker at a time adds a row per deletion table every 15 s.
CREATE TABLE IF NOT EXISTS "sexton".samples (
    taken_at timestamptz NOT NULL,
    database text NOT NULL,
    deletion_table text NOT NULL,
    -- Counting stops at 10,000; capped tells that there were more.
    pending bigint NOT NULL,
    capped boolean NOT NULL,
    deferred bigint NOT NULL,
    oldest_age_seconds double precision NOT NULL,
    -- The first of its five minutes: kept 7 days, the others one.
    coarse boolean NOT NULL,
    -- What runs have finished since the sample before.
    finished bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (taken_at, database, deletion_table)
);

-- The removal of samples that are kept for a day.
CREATE INDEX IF NOT EXISTS samples_fine_taken_at_idx ON "sexton".samples (taken_at) WHERE NOT coarse;

COMMENT ON TABLE "sexton".samples IS 'Sexton: backlog over time, every 15 s for a day and every 5 minutes for 7 days';

-- What people changed, written before or together with the change.
CREATE TABLE IF NOT EXISTS "sexton".audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    actor text NOT NULL,
    -- The address that the request came from; empty for the command line.
    remote text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    reason text NOT NULL
);

CREATE INDEX IF NOT EXISTS audit_at_idx ON "sexton".audit (at);

COMMENT ON TABLE "sexton".audit IS 'Sexton: who paused, resumed or retried what, and why; kept 90 days';
