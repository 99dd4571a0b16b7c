-- Who may work on what. The token grows by one with each acquisition and is never given out twice, so a
-- released lease keeps its row.
CREATE TABLE "sexton".leases (
    key text PRIMARY KEY,
    token bigint NOT NULL,
    holder text NOT NULL,
    acquired_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".leases IS 'Sexton: who works on what, and until when';

-- One row per run of a job; folded counts the runs without any change that share a row. A run whose
-- process died has no end.
CREATE TABLE "sexton".runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    database text NOT NULL,
    holder text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    ended_at timestamptz,
    outcome text CHECK (outcome IN ('done', 'over_limit', 'skipped', 'failed')),
    -- Whether anything was done; runs that changed nothing share a row per minute.
    changed boolean NOT NULL DEFAULT false,
    stats jsonb NOT NULL DEFAULT '{}',
    error text,
    -- Why a run that had work to do got nothing done; NULL for all others.
    held text,
    -- What batches have counted of a run that failed and that is in the statistics, by database and row of run_counts, so that nothing is added
    -- twice. NULL where no other process has taken the run for dead or added anything.
    counted jsonb,
    folded integer NOT NULL DEFAULT 1 CHECK (folded >= 1),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
);

-- The last runs of a kind in a database, and the removal of old rows.
CREATE INDEX runs_kind_database_started_at_idx ON "sexton".runs (kind, database, started_at DESC, id DESC);
CREATE INDEX runs_started_at_idx ON "sexton".runs (started_at);

COMMENT ON TABLE "sexton".runs IS 'Sexton: history of job runs, kept 7 days';

INSERT INTO "sexton".objects (kind, identity, component) VALUES
    ('table', '"sexton".leases', 'jobs'),
    ('table', '"sexton".runs', 'jobs');
