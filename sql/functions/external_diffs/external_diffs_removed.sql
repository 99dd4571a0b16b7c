-- Queues the objects of deleted diffs in the transaction that deletes them, because a
-- rollback could not restore a deleted object. A diff that is being moved may have an
-- object that its row does not name yet. The trigger keeps the diff's row in
-- "sexton".external_diffs until the object is deleted, because a session that waits for
-- this deletion may have locked that row.
CREATE OR REPLACE FUNCTION "sexton".external_diffs_removed()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    INSERT INTO "sexton".external_diff_removals (diff_id, key, store)
    SELECT
        removed.id,
        pg_catalog.format('merge_request_diffs/mr-%s/%s', removed.merge_request_id, coalesce(nullif(removed.external_diff, ''), 'diff-' || removed.id)),
        CASE WHEN removed.stored_externally THEN removed.external_diff_store END
    FROM sexton_removed AS removed
    WHERE removed.stored_externally
       OR EXISTS (SELECT FROM "sexton".external_diffs AS ledger WHERE ledger.diff_id = removed.id);

    RETURN NULL;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".external_diffs_removed() IS 'Sexton: queues the objects of deleted diffs for removal';

-- The trigger is created only once, because replacing it locks the table. With ENABLE
-- ALWAYS it also fires for replicated changes, like Sexton's other triggers. Only the
-- table's owner can set that.
DO $sexton$
DECLARE
    diffs CONSTANT pg_catalog.regclass := '"public".merge_request_diffs';
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = diffs AND tgname = 'sexton_external_diffs_removed') THEN
        CREATE TRIGGER sexton_external_diffs_removed
        AFTER DELETE ON "public".merge_request_diffs
        REFERENCING OLD TABLE AS sexton_removed
        FOR EACH STATEMENT
        EXECUTE FUNCTION "sexton".external_diffs_removed();

        IF pg_catalog.pg_has_role((SELECT relowner FROM pg_catalog.pg_class WHERE oid = diffs), 'USAGE') THEN
            ALTER TABLE "public".merge_request_diffs ENABLE ALWAYS TRIGGER sexton_external_diffs_removed;
        END IF;
    END IF;
END;
$sexton$;
