-- The table has the leases. Each acquisition increments the token. The row of a released
-- lease is kept, so that no token is granted twice.
CREATE TABLE IF NOT EXISTS "sexton".leases (
    key text PRIMARY KEY,
    token bigint NOT NULL,
    holder text NOT NULL,
    -- acquired_at identifies an acquisition together with token and holder, because a
    -- crash of the server can revert a token, which is then granted again.
    acquired_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".leases IS 'Sexton: leases with their holders';

-- The table has one row per run of a job. folded counts the runs without changes that
-- share the row. A run whose process died has no ended_at.
CREATE TABLE IF NOT EXISTS "sexton".runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    database text NOT NULL,
    holder text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    ended_at timestamptz,
    outcome text CHECK (outcome IN ('done', 'over_limit', 'skipped', 'failed')),
    -- changed is true if the run changed anything. Runs that changed nothing share a row
    -- per minute.
    changed boolean NOT NULL DEFAULT false,
    -- stats is json and not jsonb, which is 1.5 times as long. Each run writes it, and
    -- readers read all of it.
    stats json NOT NULL DEFAULT '{}',
    error text,
    -- held is the reason why a run with pending work changed nothing. It is NULL for
    -- other runs.
    held text,
    folded integer NOT NULL DEFAULT 1 CHECK (folded >= 1),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
);

-- This index finds the last runs of a kind in a database. Runs of all kinds are read by
-- id, which is nearly in the order in which runs began. So they need no index on the
-- time: each index costs a WAL record per run.
CREATE INDEX IF NOT EXISTS runs_kind_database_started_at_idx ON "sexton".runs (kind, database, started_at DESC, id DESC);

COMMENT ON TABLE "sexton".runs IS 'Sexton: history of job runs, kept 7 days';

-- The table has the running workers. Each worker updates its row every 5 s. A worker
-- whose row is older than 15 s counts as dead, and other workers take over its jobs.
CREATE TABLE IF NOT EXISTS "sexton".clients (
    client_id text PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    started_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    -- deaf lists, as kind/database, the work that the client polls for because it
    -- receives no notifications.
    deaf text[] NOT NULL DEFAULT '{}',
    -- held lists, as "kind/database: reason", the work that is held because its
    -- configuration does not fit the database.
    held text[] NOT NULL DEFAULT '{}',
    -- digests has the generations of the client's definitions by lease key.
    digests jsonb NOT NULL DEFAULT '{}',
    -- schedules lists, as kind/database, the schedules of the client if it is the leader.
    schedules text[] NOT NULL DEFAULT '{}',
    -- foreground is true for a pass in the foreground, which runs no jobs. Its row shows
    -- that the holder of its leases is alive.
    foreground boolean NOT NULL DEFAULT false,
    -- reload_error is the reason why the worker refused a change of its files. It is
    -- empty if the worker uses the current files.
    reload_error text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".clients IS 'Sexton: running workers and foreground passes, with their last heartbeats';

-- The table has the last tick of each schedule, written in the transaction that inserts
-- the tick's job. With it, a leader runs a tick that was missed while no worker was
-- running.
CREATE TABLE IF NOT EXISTS "sexton".schedules (
    kind text NOT NULL,
    database text NOT NULL,
    last_tick timestamptz NOT NULL,
    -- ticked is false if last_tick is the time at which the schedule was first seen
    -- instead of a tick.
    ticked boolean NOT NULL DEFAULT true,
    PRIMARY KEY (kind, database)
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".schedules IS 'Sexton: last tick of each schedule';

-- The table has the job kinds that enqueue accepts. "sexton migrate up" writes it.
CREATE TABLE IF NOT EXISTS "sexton".job_kinds (
    kind text PRIMARY KEY,
    queue text NOT NULL,
    -- args has the type of each argument: text, bigint, key or boolean.
    args jsonb NOT NULL,
    -- defaults has the values of optional arguments.
    defaults jsonb NOT NULL,
    -- cron is true if the kind runs on a schedule. enqueue then accepts no run_at.
    cron boolean NOT NULL,
    max_attempts smallint NOT NULL,
    -- row_argument refers to a row of the application, in row_table by row_column. They
    -- are NULL if the kind has no such argument.
    row_table text,
    row_column text,
    row_argument text,
    -- databases has the valid values of the argument "database". It is NULL if the kind
    -- has no such argument.
    databases text[],
    CHECK (pg_catalog.jsonb_typeof(args) = 'object' AND pg_catalog.jsonb_typeof(defaults) = 'object')
);

COMMENT ON TABLE "sexton".job_kinds IS 'Sexton: job kinds that enqueue accepts';

-- The table has the installed definitions of each digest in fences, one line per
-- definition, so that an installation can report new definitions.
CREATE TABLE IF NOT EXISTS "sexton".generations (
    kind text PRIMARY KEY,
    digest text NOT NULL,
    entries text[] NOT NULL,
    installed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

COMMENT ON TABLE "sexton".generations IS 'Sexton: last installed definitions';

-- The table has the backlog over time, for the page. One worker at a time adds a row per
-- deletion table every 15 s.
CREATE TABLE IF NOT EXISTS "sexton".samples (
    taken_at timestamptz NOT NULL,
    database text NOT NULL,
    deletion_table text NOT NULL,
    -- pending is at most 10,000. capped reports that there were more rows.
    pending bigint NOT NULL,
    capped boolean NOT NULL,
    deferred bigint NOT NULL,
    oldest_age_seconds double precision NOT NULL,
    -- coarse marks the first sample of each five minutes. It is kept for 7 days instead
    -- of one.
    coarse boolean NOT NULL,
    -- finished is the number of rows that runs have finished since the last sample.
    finished bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (taken_at, database, deletion_table)
);

-- This index finds expired samples among the samples that are kept for a day.
CREATE INDEX IF NOT EXISTS samples_fine_taken_at_idx ON "sexton".samples (taken_at) WHERE NOT coarse;

COMMENT ON TABLE "sexton".samples IS 'Sexton: samples of the backlog, every 15 s for a day and every 5 minutes for 7 days';

-- The table is the audit trail of operators. An entry is written before the change or in
-- its transaction.
CREATE TABLE IF NOT EXISTS "sexton".audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    actor text NOT NULL,
    -- remote is the address of the request. It is empty for the command line.
    remote text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    reason text NOT NULL
);

CREATE INDEX IF NOT EXISTS audit_at_idx ON "sexton".audit (at);

COMMENT ON TABLE "sexton".audit IS 'Sexton: audit trail of operators, kept 90 days';
