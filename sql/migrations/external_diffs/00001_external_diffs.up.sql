-- What Sexton knows about single diffs: who moves one at the moment, what its object has to contain, and why one stays
-- where it is. A diff that was never looked at has no row.
--
-- The row is also the lease of its diff. Those of "sexton".leases and fences keep their rows for ever, which one per
-- diff would make too many; here the row is needed anyway, and goes with the diff.
CREATE TABLE "sexton".external_diffs (
    diff_id bigint PRIMARY KEY,
    -- Another one with each claim, at random. Nothing is written for a diff under another token than the newest.
    token bigint NOT NULL DEFAULT 1,
    holder text,
    -- Until then no other job may touch the diff's object; NULL while no job works on it.
    busy_until timestamptz,
    -- Of the object: its length in bytes and its checksum. NULL while the text is in the database.
    size bigint,
    sha256 bytea,
    moved_at timestamptz,
    -- Why the diff stays in the database although it is due; NULL where nothing is in the way.
    skip_reason text,
    skipped_at timestamptz,
    -- Brought back into the database by hand: it stays there.
    kept boolean NOT NULL DEFAULT false,
    -- What a diff was like when it was refused: files_count, and a fingerprint of its files' row versions. It is looked at again once
    -- that is no longer what it is.
    skip_state text,
    -- The upload in parts that an attempt has begun: the next one goes on with it. NULL where there is none.
    upload_id text,
    -- What the parts are of: the form of objects, the store, the key, and a fingerprint of the files' row versions.
    upload_state text,
    upload_bytes bigint,
    upload_sent bigint NOT NULL DEFAULT 0,
    upload_began_at timestamptz,
    -- When a worker was last at it.
    upload_seen_at timestamptz,
    -- How often no byte has moved for too long, or the store was away, and why the last time.
    upload_failures integer NOT NULL DEFAULT 0,
    upload_error text
) WITH (fillfactor = 70);

CREATE INDEX external_diffs_skip_reason_idx ON "sexton".external_diffs (skip_reason) WHERE skip_reason IS NOT NULL;
CREATE INDEX external_diffs_upload_id_idx ON "sexton".external_diffs (upload_id) WHERE upload_id IS NOT NULL;

COMMENT ON TABLE "sexton".external_diffs IS 'Sexton: diffs that are moved to object storage, and why others are not';

-- Objects without a reference. A row comes in the transaction that removes the last reference, and goes after
-- its object.
CREATE TABLE "sexton".external_diff_removals (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    diff_id bigint NOT NULL,
    key text NOT NULL,
    -- 1 local disk, 2 object storage; NULL: wherever diffs are moved to
    store integer,
    queued_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
    not_before timestamptz NOT NULL DEFAULT pg_catalog.now(),
    attempts integer NOT NULL DEFAULT 0,
    last_error text
) WITH (
    -- A queue: vacuum by count, not by share of a size that says nothing.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000
);

CREATE INDEX external_diff_removals_not_before_idx ON "sexton".external_diff_removals (not_before, id);

COMMENT ON TABLE "sexton".external_diff_removals IS 'Sexton: objects of deleted diffs, which are still to be removed';

-- How far the search for diffs that are due has come, per rule. It begins anew with each round, so that what became due
-- behind it is found.
CREATE TABLE "sexton".external_diff_cursors (
    rule text PRIMARY KEY,
    after_id bigint NOT NULL,
    -- In the order of size a round goes through all diffs once per band of sizes: the band, and the highest id that an earlier band of
    -- the round has seen, behind which every size is wanted.
    band integer NOT NULL DEFAULT 0,
    known_id bigint NOT NULL DEFAULT 0,
    round_began_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);

COMMENT ON TABLE "sexton".external_diff_cursors IS 'Sexton: how far the search for diffs to be moved has come';

-- Who this installation is, to others that may use the same store of objects. A copy of the database has the same number, so
-- "sexton".external_diff_place says where the database is as well.
CREATE TABLE "sexton".external_diff_installation (
    id uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);

CREATE UNIQUE INDEX external_diff_installation_one_idx ON "sexton".external_diff_installation ((true));

COMMENT ON TABLE "sexton".external_diff_installation IS 'Sexton: who this installation is, as stores of diffs have it in their markers';

INSERT INTO "sexton".external_diff_installation DEFAULT VALUES;

-- The stores that diffs were moved to, and how far each has been looked through for objects that no row refers to.
CREATE TABLE "sexton".external_diff_stores (
    -- the URL with what tells one store from another, without anything secret
    store text PRIMARY KEY,
    first_used_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    -- What the store's marker has to say; next_seal while it is being changed. The marker and the seal change every hour, so a
    -- copy of the whole server, which no identifier tells from the original, falls behind.
    seal uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid(),
    next_seal uuid,
    -- NULL until the marker has been seen in the store
    sealed_at timestamptz,
    -- A server that was started anew may be a copy that was started beside the original. Until then it changes no seal and
    -- sweeps nothing; the original does, and the copy is found out.
    server_started_at timestamptz NOT NULL DEFAULT pg_catalog.pg_postmaster_start_time(),
    hold_until timestamptz,
    -- The round in progress or, where it has ended, the last one. It goes on after the key sweep_after.
    sweep_after text NOT NULL DEFAULT '',
    sweep_began_at timestamptz,
    sweep_ended_at timestamptz,
    listed bigint NOT NULL DEFAULT 0,
    swept bigint NOT NULL DEFAULT 0,
    -- objects that are not named as those of diffs are
    foreign_objects bigint NOT NULL DEFAULT 0,
    -- objects without a row that stay, as there are too many of them at once
    held_back bigint NOT NULL DEFAULT 0
);

COMMENT ON TABLE "sexton".external_diff_stores IS 'Sexton: stores of diffs, their seals, and the search for objects that no row refers to';

INSERT INTO "sexton".objects (kind, identity, component) VALUES
    ('table', '"sexton".external_diffs', 'external_diffs'),
    ('table', '"sexton".external_diff_removals', 'external_diffs'),
    ('table', '"sexton".external_diff_cursors', 'external_diffs'),
    ('table', '"sexton".external_diff_installation', 'external_diffs'),
    ('table', '"sexton".external_diff_stores', 'external_diffs');
