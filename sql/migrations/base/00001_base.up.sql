-- The fencing token of each lease, as this database knows it. A new holder raises the token in all slots of its key before its first
-- batch (see raise_fence). Every batch locks one slot and compares the token (see begin_batch). Sessions of one pass lock different
-- slots, because two lockers of one row need a MultiXact.
CREATE TABLE IF NOT EXISTS "sexton".fences (
    key text NOT NULL,
    slot integer NOT NULL CHECK (slot >= 0 AND slot < 32),
    token bigint NOT NULL,
    -- The generation of definitions that may be worked with under the lease, which "sexton triggers install" alone sets, raising the
    -- token with it. NULL: none is recorded, and any is let through. It is the same in all slots of a key.
    digest text,
    PRIMARY KEY (key, slot)
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".fences IS 'Sexton: fencing tokens of leases, checked in every batch';

-- The outbox. A reader takes rows WHERE txid < pg_snapshot_xmin(pg_current_snapshot()) in order of
-- (txid, id): ids are given out before commit, so an id alone would skip what commits late.
CREATE TABLE IF NOT EXISTS "sexton".events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    txid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    kind text NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);

CREATE INDEX IF NOT EXISTS events_txid_id_idx ON "sexton".events (txid, id);

COMMENT ON TABLE "sexton".events IS 'Sexton: outbox of what happened, kept 7 days';

-- The application's tables that functions read where they are there, as "sexton migrate up" has found them.
CREATE TABLE IF NOT EXISTS "sexton".application_tables (
    name text PRIMARY KEY,
    relation regclass NOT NULL
);

COMMENT ON TABLE "sexton".application_tables IS 'Sexton: optional tables of the application, as the last migration has found them';
