-- The leases. Each acquisition increments the token, which is never granted twice, so the row of a released lease is
-- kept.
CREATE TABLE IF NOT EXISTS "sexton".leases (
    key text PRIMARY KEY,
    token bigint NOT NULL,
    holder text NOT NULL,
    -- Identifies an acquisition together with token and holder, because a crash of the server can revert a token, which is then granted again.
    acquired_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".leases IS 'Sexton: leases with their holders';

-- One row per run of a job. folded counts the runs without changes that share the row. A run whose process died has no
-- end.
CREATE TABLE IF NOT EXISTS "sexton".runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    database text NOT NULL,
    holder text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    ended_at timestamptz,
    outcome text CHECK (outcome IN ('done', 'over_limit', 'skipped', 'failed')),
    -- Whether the run changed anything. Runs that changed nothing share a row per minute.
    changed boolean NOT NULL DEFAULT false,
    -- Not jsonb, which is 1.5 times as long: each run writes it, and readers need all of it.
    stats json NOT NULL DEFAULT '{}',
    error text,
    -- Why a run with work to do changed nothing; NULL for other runs.
    held text,
    folded integer NOT NULL DEFAULT 1 CHECK (folded >= 1),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
);

-- For the last runs of a kind in a database. The ids are nearly in the order in which runs began, which saves an index: each index costs a WAL record per
-- run.
CREATE INDEX IF NOT EXISTS runs_kind_database_started_at_idx ON "sexton".runs (kind, database, started_at DESC, id DESC);

COMMENT ON TABLE "sexton".runs IS 'Sexton: history of job runs, kept 7 days';

-- The running workers. Each updates its row every 5 s. After 15 s of silence a worker counts as dead, and others take over its
-- jobs.
CREATE TABLE IF NOT EXISTS "sexton".clients (
    client_id text PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    started_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    -- The work that the client polls for because notifications do not reach it, as kind/database.
    deaf text[] NOT NULL DEFAULT '{}',
    -- The work that is held because it does not fit the database, as "kind/database: reason".
    held text[] NOT NULL DEFAULT '{}',
    -- The generations of its definitions by lease key.
    digests jsonb NOT NULL DEFAULT '{}',
    -- The schedules that it follows as the leader, as kind/database.
    schedules text[] NOT NULL DEFAULT '{}',
    -- A pass in the foreground, which takes no jobs. Its row shows that the holder of its leases is alive.
    foreground boolean NOT NULL DEFAULT false,
    -- Why the worker refused a change of its files; empty if it uses the current files.
    reload_error text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".clients IS 'Sexton: running workers and foreground passes, with their last heartbeats';

-- The last tick of each schedule, written in the transaction that inserts its job. A leader uses it to run a tick that was
-- missed while no worker was running.
CREATE TABLE IF NOT EXISTS "sexton".schedules (
    kind text NOT NULL,
    database text NOT NULL,
    last_tick timestamptz NOT NULL,
    -- False if last_tick is the time when the schedule was first seen instead of a tick.
    ticked boolean NOT NULL DEFAULT true,
    PRIMARY KEY (kind, database)
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".schedules IS 'Sexton: last tick of each schedule';

-- The job kinds that enqueue accepts. "sexton migrate up" writes them.
CREATE TABLE IF NOT EXISTS "sexton".job_kinds (
    kind text PRIMARY KEY,
    queue text NOT NULL,
    -- The type of each argument: text, bigint, key or boolean.
    args jsonb NOT NULL,
    -- The values of optional arguments.
    defaults jsonb NOT NULL,
    -- Whether the kind runs on a schedule. enqueue then accepts no time.
    cron boolean NOT NULL,
    max_attempts smallint NOT NULL,
    -- The argument that refers to a row of the application, with the table and column; NULL if there is none.
    row_table text,
    row_column text,
    row_argument text,
    -- The valid values of the argument database; NULL if the kind has no such argument.
    databases text[],
    CHECK (pg_catalog.jsonb_typeof(args) = 'object' AND pg_catalog.jsonb_typeof(defaults) = 'object')
);

COMMENT ON TABLE "sexton".job_kinds IS 'Sexton: job kinds that enqueue accepts';

-- The installed definitions of each digest in fences, one line per definition, so that an installation can report new ones.
CREATE TABLE IF NOT EXISTS "sexton".generations (
    kind text PRIMARY KEY,
    digest text NOT NULL,
    entries text[] NOT NULL,
    installed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

COMMENT ON TABLE "sexton".generations IS 'Sexton: last installed definitions';

-- The backlog over time, for the page. One worker at a time adds a row per deletion table every 15 s.
CREATE TABLE IF NOT EXISTS "sexton".samples (
    taken_at timestamptz NOT NULL,
    database text NOT NULL,
    deletion_table text NOT NULL,
    -- Counting stops at 10,000. capped reports that there were more.
    pending bigint NOT NULL,
    capped boolean NOT NULL,
    deferred bigint NOT NULL,
    oldest_age_seconds double precision NOT NULL,
    -- The first sample of each five minutes, which is kept for 7 days instead of one.
    coarse boolean NOT NULL,
    -- The number of rows that runs have finished since the last sample.
    finished bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (taken_at, database, deletion_table)
);

-- For the removal of samples that are kept for a day.
CREATE INDEX IF NOT EXISTS samples_fine_taken_at_idx ON "sexton".samples (taken_at) WHERE NOT coarse;

COMMENT ON TABLE "sexton".samples IS 'Sexton: samples of the backlog, every 15 s for a day and every 5 minutes for 7 days';

-- The audit trail of operators, written before a change or in its transaction.
CREATE TABLE IF NOT EXISTS "sexton".audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    actor text NOT NULL,
    -- The address of the request; empty for the command line.
    remote text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    reason text NOT NULL
);

CREATE INDEX IF NOT EXISTS audit_at_idx ON "sexton".audit (at);

COMMENT ON TABLE "sexton".audit IS 'Sexton: audit trail of operators, kept 90 days';
