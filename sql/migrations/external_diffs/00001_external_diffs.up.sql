-- The table has the state of diffs: the worker that holds a diff, the size and checksum
-- of its object, and the reason why it cannot be moved. A diff that no job has worked on
-- has no row.
--
-- A row is also the lease on its diff. Rows of "sexton".leases and fences are never
-- deleted, so one row per diff there would be too many. A row of this table is deleted
-- with its diff.
CREATE TABLE IF NOT EXISTS "sexton".external_diffs (
    diff_id bigint PRIMARY KEY,
    -- token is a random number that changes with each claim. Only the holder of the
    -- newest token may change the diff.
    token bigint NOT NULL DEFAULT 1,
    holder text,
    -- No other job may change the diff's object before busy_until. It is NULL while no
    -- job holds the diff.
    busy_until timestamptz,
    -- size is the length of the object in bytes, and sha256 its checksum. They are NULL
    -- while the text is in the database.
    size bigint,
    sha256 bytea,
    moved_at timestamptz,
    -- skip_reason is the reason why a due diff cannot be moved. It is NULL if the diff
    -- can be moved.
    skip_reason text,
    skipped_at timestamptz,
    -- kept is true if an operator has restored the diff to the database. The diff is not
    -- moved again.
    kept boolean NOT NULL DEFAULT false,
    -- skip_state has the files_count of the skipped diff and a fingerprint of the row
    -- versions of its files. The diff is tried again when they have changed.
    skip_state text
) WITH (fillfactor = 70);

CREATE INDEX IF NOT EXISTS external_diffs_skip_reason_idx ON "sexton".external_diffs (skip_reason) WHERE skip_reason IS NOT NULL;

COMMENT ON TABLE "sexton".external_diffs IS 'Sexton: the state of diffs that were moved, are being moved, or cannot be moved';

-- The table has the objects without a reference. A row is inserted in the transaction
-- that removes the last reference, and deleted after its object.
CREATE TABLE IF NOT EXISTS "sexton".external_diff_removals (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    diff_id bigint NOT NULL,
    key text NOT NULL,
    -- store is 1 for local disk, 2 for object storage, and NULL for the configured store.
    store integer,
    queued_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
    not_before timestamptz NOT NULL DEFAULT pg_catalog.now(),
    attempts integer NOT NULL DEFAULT 0,
    last_error text
) WITH (
    -- The size of a queue varies, so autovacuum starts after a number of dead rows.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000
);

CREATE INDEX IF NOT EXISTS external_diff_removals_not_before_idx ON "sexton".external_diff_removals (not_before, id);

COMMENT ON TABLE "sexton".external_diff_removals IS 'Sexton: objects of deleted diffs that are queued for removal';

-- The table has the position of the search for due diffs, per rule. Each round starts
-- again at the first diff, so that it finds diffs that became due after the last round
-- had passed them.
CREATE TABLE IF NOT EXISTS "sexton".external_diff_cursors (
    rule text PRIMARY KEY,
    after_id bigint NOT NULL,
    round_began_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);

COMMENT ON TABLE "sexton".external_diff_cursors IS 'Sexton: the position of the search for due diffs';

-- The table has the identity of this installation in the marker of its store. A copy of
-- the database has the same id, so the marker also contains
-- "sexton".external_diff_place().
CREATE TABLE IF NOT EXISTS "sexton".external_diff_installation (
    id uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);

CREATE UNIQUE INDEX IF NOT EXISTS external_diff_installation_one_idx ON "sexton".external_diff_installation ((true));

COMMENT ON TABLE "sexton".external_diff_installation IS 'Sexton: the identity of this installation in the marker of its store';

-- The table has the stores in which the marker of this installation was seen. If the
-- marker is missing later, another disk or bucket may be in its place.
CREATE TABLE IF NOT EXISTS "sexton".external_diff_stores (
    -- store is the URL with prefix and endpoint, without credentials.
    store text PRIMARY KEY,
    first_used_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

COMMENT ON TABLE "sexton".external_diff_stores IS 'Sexton: stores in which the marker of this installation was seen';
