-- What deletions took along. A row of this table holds the rows that one statement deleted from one table, or the values that it changed, as one text
-- per column: the text form of the array of its values.
--
-- A set of kept rows belongs to the deletions of the parents in origins: each is the id of the set that the parent itself is in. Sets that
-- no other one caused have none; they are the units of `sexton undo`.
CREATE TABLE IF NOT EXISTS "sexton".undo (
    -- Sets of one statement share it; tombstones name it as their origin. Databases begin at different numbers, as origins travel between them.
    id bigint NOT NULL,
    number bigint NOT NULL,
    kept_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    layout bigint NOT NULL,
    rows integer NOT NULL,
    -- Rows that were deleted or changed, and not kept.
    left_out integer NOT NULL DEFAULT 0,
    origins bigint[],
    -- The columns by which the rows referred to their parents, the parents' own, and their table. What triggers keep within a worker's batch has the
    -- batch's own set as its origin and none of these: the layout has the native keys that lead to it. Via is empty where it went along with others.
    via text[],
    keys text[],
    parent oid,
    -- For changed rows: the columns that are kept, the row's key and the changed ones, which are given too; and the value written, NULL for NULL.
    fields text[],
    changed text[],
    written text,
    -- The session that deleted, where no worker did.
    actor text,
    -- One text per column; NULL where nothing was kept.
    c text[],
    -- The rows that an undo has restored, as numbers from 1 within the set.
    restored integer[],
    PRIMARY KEY (id, number, kept_at)
) PARTITION BY RANGE (kept_at);

CREATE INDEX IF NOT EXISTS undo_origins_idx ON "sexton".undo USING gin (origins);
CREATE INDEX IF NOT EXISTS undo_units_idx ON "sexton".undo (kept_at) WHERE origins IS NULL;

COMMENT ON TABLE "sexton".undo IS 'Sexton: rows that deletions took along, kept to be restored';

-- The columns of a table at the time of a deletion, and how each is kept.
CREATE TABLE IF NOT EXISTS "sexton".undo_layouts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relation oid NOT NULL,
    name text NOT NULL,
    signature text NOT NULL,
    columns text[] NOT NULL,
    numbers smallint[] NOT NULL,
    -- The types of the columns, and of the arrays of their values.
    types text[] NOT NULL,
    arrays text[] NOT NULL,
    -- Expressions: what is kept of each column over the rows of gone, and a row's size.
    terms text[] NOT NULL,
    size text NOT NULL,
    key text[] NOT NULL,
    -- The native foreign keys by which rows go with others: parent, via, keys.
    cascades jsonb NOT NULL
);

-- Not unique: deletions of one table would wait for each other after its columns have changed.
CREATE INDEX IF NOT EXISTS undo_layouts_signature_idx ON "sexton".undo_layouts (relation, signature);

COMMENT ON TABLE "sexton".undo_layouts IS 'Sexton: columns of tables whose rows are kept';

-- One row: how long rows were last kept, by which they still expire once undo is off; and since when triggers keep no more, as what is kept has reached
-- its limit.
CREATE TABLE IF NOT EXISTS "sexton".undo_state (
    -- There is one row.
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    keep interval NOT NULL,
    full_since timestamptz
);

COMMENT ON TABLE "sexton".undo_state IS 'Sexton: how deleted rows are kept at present';

CREATE TABLE IF NOT EXISTS "sexton".undo_rest PARTITION OF "sexton".undo DEFAULT;

COMMENT ON TABLE "sexton".undo_rest IS 'Sexton: kept rows that no partition takes';

CREATE SEQUENCE IF NOT EXISTS "sexton".undo_ids OWNED BY "sexton".undo.id;

-- Servers may be built without lz4; the default compression takes twice the time.
DO $sexton$
BEGIN
    ALTER TABLE "sexton".undo ALTER COLUMN c SET COMPRESSION lz4;
    ALTER TABLE "sexton".undo_rest ALTER COLUMN c SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END;
$sexton$;

-- The set that the deleted row is kept in.
ALTER TABLE "public".loose_foreign_keys_deleted_records ADD COLUMN IF NOT EXISTS origin bigint;
-- The same for each of the keys.
ALTER TABLE "sexton".swept ADD COLUMN IF NOT EXISTS origins bigint[];
