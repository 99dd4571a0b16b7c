-- The table has the fencing token of each lease in this database. A new holder raises the
-- token in all slots of its key before its first batch (see raise_fence). Every batch
-- locks one slot and compares the token (see begin_batch). Sessions of one pass lock
-- different slots, because two lockers of one row need a MultiXact.
CREATE TABLE IF NOT EXISTS "sexton".fences (
    key text NOT NULL,
    slot integer NOT NULL CHECK (slot >= 0 AND slot < 32),
    token bigint NOT NULL,
    -- digest is the generation of definitions that holders of the lease must have. Only
    -- "sexton triggers install" sets it, and raises the token in the same statement. NULL
    -- allows any generation. All slots of a key have the same digest.
    digest text,
    PRIMARY KEY (key, slot)
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".fences IS 'Sexton: fencing tokens of leases, checked in every batch';

-- The table is the outbox. A reader reads the rows WHERE txid <
-- pg_snapshot_xmin(pg_current_snapshot()) in the order of (txid, id). Ids are assigned
-- before the commit, so reading by id alone would skip rows that commit late.
CREATE TABLE IF NOT EXISTS "sexton".events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    txid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    kind text NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);

CREATE INDEX IF NOT EXISTS events_txid_id_idx ON "sexton".events (txid, id);

COMMENT ON TABLE "sexton".events IS 'Sexton: outbox of events, kept 7 days';

-- The table has the application's optional tables that Sexton's functions read. "sexton
-- migrate up" writes it.
CREATE TABLE IF NOT EXISTS "sexton".application_tables (
    name text PRIMARY KEY,
    relation regclass NOT NULL
);

COMMENT ON TABLE "sexton".application_tables IS 'Sexton: optional tables of the application that the last migration found';
