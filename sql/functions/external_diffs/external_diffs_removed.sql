-- Queues the objects of deleted diffs, in the transaction that deletes them: a cascade cannot remove an object, and a
-- rollback could not bring it back. A diff that is being moved may have one that its row does not know of yet; its row in
-- "sexton".external_diffs goes with the object, as it may be locked now by a session that waits for this very deletion.
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

-- Made once: to make it anew would lock the table. It also fires for changes that replication applies, as Sexton's other triggers;
-- only the table's owner may say so.
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
