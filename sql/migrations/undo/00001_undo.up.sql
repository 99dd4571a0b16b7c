-- The table has the rows that deletions deleted or changed. A row of this table is a set:
-- the rows that one statement deleted from one table, or the values that it changed. A
-- set has one text per column of that table: the text form of the array of the column's
-- values.
--
-- origins has the ids of the sets with the deleted parents that caused this set. A set
-- without origins is a deletion that `sexton undo` can restore.
CREATE TABLE IF NOT EXISTS "sexton".undo (
    -- Sets of one statement have the same id, and tombstones refer to it as their origin.
    -- Each database starts at a different number, because tombstones in one database may
    -- have origins in another.
    id bigint NOT NULL,
    number bigint NOT NULL,
    kept_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    layout bigint NOT NULL,
    rows integer NOT NULL,
    -- left_out is the number of rows that were deleted or changed and not kept.
    left_out integer NOT NULL DEFAULT 0,
    origins bigint[],
    -- via has the columns by which the rows referred to their parents, keys the
    -- referenced columns, and parent the parents' table. Sets that triggers keep within a
    -- worker's batch have the batch's own set as their origin. Their via, keys and parent
    -- are NULL, because the layout has the native foreign keys. via is empty if a cascade
    -- or trigger deleted the rows together with rows of an application's statement.
    via text[],
    keys text[],
    parent oid,
    -- These columns are for changed rows. fields has the kept columns, which are the
    -- row's key and the changed columns. changed has the changed columns, and written the
    -- value that they were set to.
    fields text[],
    changed text[],
    written text,
    -- actor is the role of the session that deleted the rows. It is NULL for a worker.
    actor text,
    -- c has one text per column. It is NULL if no row was kept.
    c text[],
    -- restored has the numbers of the rows that an undo has restored, counted from 1
    -- within the set.
    restored integer[],
    PRIMARY KEY (id, number, kept_at)
) PARTITION BY RANGE (kept_at);

CREATE INDEX IF NOT EXISTS undo_origins_idx ON "sexton".undo USING gin (origins);
CREATE INDEX IF NOT EXISTS undo_units_idx ON "sexton".undo (kept_at) WHERE origins IS NULL;

COMMENT ON TABLE "sexton".undo IS 'Sexton: deleted and changed rows, kept to be restored';

-- The table has the layouts of tables at the time of a deletion: their columns, and how
-- each column is kept.
CREATE TABLE IF NOT EXISTS "sexton".undo_layouts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relation oid NOT NULL,
    name text NOT NULL,
    signature text NOT NULL,
    columns text[] NOT NULL,
    numbers smallint[] NOT NULL,
    -- types has the types of the columns, and arrays the types of the arrays of their
    -- values.
    types text[] NOT NULL,
    arrays text[] NOT NULL,
    -- terms and size are SQL expressions over the deleted rows (gone). terms has the kept
    -- text of each column, and size the size of a row.
    terms text[] NOT NULL,
    size text NOT NULL,
    key text[] NOT NULL,
    -- cascades has the native foreign keys with ON DELETE CASCADE, each with parent, via
    -- and keys.
    cascades jsonb NOT NULL
);

-- The index is not unique, because deletions from one table would wait for each other
-- after its columns have changed.
CREATE INDEX IF NOT EXISTS undo_layouts_signature_idx ON "sexton".undo_layouts (relation, signature);

COMMENT ON TABLE "sexton".undo_layouts IS 'Sexton: columns of tables whose rows are kept';

-- keep is the last configured time for which rows are kept. Rows expire after that time
-- even when undo is off. full_since is the time since which triggers have kept no rows,
-- because the kept rows have reached their limit.
CREATE TABLE IF NOT EXISTS "sexton".undo_state (
    -- The constraint allows only one row.
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    keep interval NOT NULL,
    full_since timestamptz
);

COMMENT ON TABLE "sexton".undo_state IS 'Sexton: how long deleted rows are kept, and whether the limit is reached';

CREATE TABLE IF NOT EXISTS "sexton".undo_rest PARTITION OF "sexton".undo DEFAULT;

COMMENT ON TABLE "sexton".undo_rest IS 'Sexton: kept rows without a daily partition';

CREATE SEQUENCE IF NOT EXISTS "sexton".undo_ids OWNED BY "sexton".undo.id;

-- The server may lack lz4. The default compression takes twice the time.
DO $sexton$
BEGIN
    ALTER TABLE "sexton".undo ALTER COLUMN c SET COMPRESSION lz4;
    ALTER TABLE "sexton".undo_rest ALTER COLUMN c SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END;
$sexton$;

-- origin is the id of the set that has the deleted parent.
ALTER TABLE "public".loose_foreign_keys_deleted_records ADD COLUMN IF NOT EXISTS origin bigint;
-- origins has, in the order of the keys, the ids of the sets that have the deleted
-- parents.
ALTER TABLE "sexton".swept ADD COLUMN IF NOT EXISTS origins bigint[];
