-- What Sexton knows about single diffs: who moves one at the moment, what its object has to contain, and why one stays
-- where it is. A diff that was never looked at has no row.
--
-- The row is also the lease of its diff. Those of "sexton".leases and fences keep their rows for ever, which one per
-- diff would make too many; here the row is needed anyway, and goes with the diff.
CREATE TABLE "sexton".external_diffs (
    diff_id bigint PRIMARY KEY,
    -- Grows by one with each claim. Nothing is written for a diff under another token than the newest.
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
    kept boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);

CREATE INDEX external_diffs_skip_reason_idx ON "sexton".external_diffs (skip_reason) WHERE skip_reason IS NOT NULL;

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

-- Reports whether a text cannot be stored as it is: it is no UTF-8, which only a database without an encoding of its own
-- lets in. (No text of Postgres contains NUL; applications store such diffs as base64 with "binary" set.)
CREATE FUNCTION "sexton".external_diff_encoded(diff text)
RETURNS boolean
LANGUAGE plpgsql
STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    IF diff IS NULL OR pg_catalog.getdatabaseencoding() <> 'SQL_ASCII' THEN
        RETURN false;
    END IF;

    PERFORM pg_catalog.convert_from(pg_catalog.convert_to(diff, 'SQL_ASCII'), 'UTF8');
    RETURN false;
EXCEPTION
    WHEN character_not_in_repertoire THEN
        RETURN true;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".external_diff_encoded(text) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".external_diff_encoded(text) IS 'Sexton: whether a diff is no UTF-8 and stored as base64';

-- The bytes that a text is stored as: UTF-8, or base64 without line breaks where it is none.
CREATE FUNCTION "sexton".external_diff_body(diff text)
RETURNS bytea
LANGUAGE plpgsql
STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    IF pg_catalog.getdatabaseencoding() <> 'SQL_ASCII' THEN
        RETURN pg_catalog.convert_to(diff, 'UTF8');
    ELSIF "sexton".external_diff_encoded(diff) THEN
        RETURN pg_catalog.convert_to(pg_catalog.translate(pg_catalog.encode(pg_catalog.convert_to(diff, 'SQL_ASCII'), 'base64'), E'\n', ''), 'SQL_ASCII');
    END IF;

    RETURN pg_catalog.convert_to(diff, 'SQL_ASCII');
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".external_diff_body(text) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".external_diff_body(text) IS 'Sexton: the bytes that a diff is stored as';

-- Where the files of a diff are in its object, for services that read it themselves: size bytes from byte offset_bytes on
-- of the object are the text, in UTF-8, and base64 of it where is_base64 (or, in data of old applications, the plain text
-- all the same: what cannot be decoded is taken as it is). No rows for a diff that is in the database.
CREATE FUNCTION "sexton".external_diff_layout(diff_id bigint)
RETURNS TABLE (
    relative_order integer,
    path text,
    -- 1 local disk, 2 object storage
    store integer,
    object_key text,
    offset_bytes bigint,
    size_bytes bigint,
    is_base64 boolean
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $sexton$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT
        file.relative_order,
        coalesce(file.new_path, file.old_path)::pg_catalog.text,
        diff.external_diff_store::integer,
        pg_catalog.format('merge_request_diffs/mr-%s/%s', diff.merge_request_id, diff.external_diff),
        file.external_diff_offset::bigint,
        file.external_diff_size::bigint,
        coalesce(file."binary", false)
    FROM "public".merge_request_diffs AS diff
    JOIN "public".merge_request_diff_files AS file ON file.merge_request_diff_id = diff.id
    WHERE diff.id = external_diff_layout.diff_id
      AND diff.stored_externally
    ORDER BY file.relative_order;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".external_diff_layout(bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".external_diff_layout(bigint) IS 'Sexton: where the files of a diff are in its object';

-- Queues the objects of deleted diffs, in the transaction that deletes them: a cascade cannot remove an object, and a
-- rollback could not bring it back. A diff that is being moved may have one that its row does not know of yet; its row in
-- "sexton".external_diffs goes with the object, as it may be locked now by a session that waits for this very deletion.
CREATE FUNCTION "sexton".external_diffs_removed()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    INSERT INTO "sexton".external_diff_removals (diff_id, key, store)
    SELECT
        removed.id,
        pg_catalog.format('merge_request_diffs/mr-%s/%s', removed.merge_request_id, coalesce(removed.external_diff, 'diff-' || removed.id)),
        CASE WHEN removed.stored_externally THEN removed.external_diff_store END
    FROM sexton_removed AS removed
    WHERE removed.stored_externally
       OR EXISTS (SELECT FROM "sexton".external_diffs AS ledger WHERE ledger.diff_id = removed.id);

    RETURN NULL;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".external_diffs_removed() FROM PUBLIC;

COMMENT ON FUNCTION "sexton".external_diffs_removed() IS 'Sexton: queues the objects of deleted diffs for removal';

CREATE TRIGGER sexton_external_diffs_removed
AFTER DELETE ON "public".merge_request_diffs
REFERENCING OLD TABLE AS sexton_removed
FOR EACH STATEMENT
EXECUTE FUNCTION "sexton".external_diffs_removed();

-- Also for changes that replication applies, as Sexton's other triggers. Only the table's owner may say so.
DO $sexton$
BEGIN
    IF pg_catalog.pg_has_role((SELECT relowner FROM pg_catalog.pg_class WHERE oid = '"public".merge_request_diffs'::pg_catalog.regclass), 'USAGE') THEN
        ALTER TABLE "public".merge_request_diffs ENABLE ALWAYS TRIGGER sexton_external_diffs_removed;
    END IF;
END;
$sexton$;

INSERT INTO "sexton".objects (kind, identity, component) VALUES
    ('table', '"sexton".external_diffs', 'external_diffs'),
    ('table', '"sexton".external_diff_removals', 'external_diffs'),
    ('table', '"sexton".external_diff_cursors', 'external_diffs'),
    ('function', '"sexton".external_diff_encoded(text)', 'external_diffs'),
    ('function', '"sexton".external_diff_body(text)', 'external_diffs'),
    ('function', '"sexton".external_diff_layout(bigint)', 'external_diffs'),
    ('function', '"sexton".external_diffs_removed()', 'external_diffs'),
    ('trigger', '"public".merge_request_diffs.sexton_external_diffs_removed', 'external_diffs');
