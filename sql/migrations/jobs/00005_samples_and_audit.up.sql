-- The backlog over time, for the page. One worker at a time adds a row per deletion table every 15 s.
CREATE TABLE "sexton".samples (
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
    PRIMARY KEY (taken_at, database, deletion_table)
);

-- The removal of samples that are kept for a day.
CREATE INDEX samples_fine_taken_at_idx ON "sexton".samples (taken_at) WHERE NOT coarse;

COMMENT ON TABLE "sexton".samples IS 'Sexton: backlog over time, every 15 s for a day and every 5 minutes for 7 days';

-- What people changed, written before or together with the change.
CREATE TABLE "sexton".audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    actor text NOT NULL,
    -- The address that the request came from; empty for the command line.
    remote text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    reason text NOT NULL
);

CREATE INDEX audit_at_idx ON "sexton".audit (at);

COMMENT ON TABLE "sexton".audit IS 'Sexton: who paused, resumed or retried what, and why; kept 90 days';

INSERT INTO "sexton".objects (kind, identity, component) VALUES
    ('table', '"sexton".samples', 'jobs'),
    ('table', '"sexton".audit', 'jobs');
