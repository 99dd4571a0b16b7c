-- Raises the fence of a lease to a token in all slots, and inserts the slots on the first
-- acquisition. Returns the highest token of the slots. The caller holds the lease only if
-- that token is its own, because a slot is never lowered.
--
-- The UPDATE reads the rows by the index and so locks them in the order of slots. So two
-- callers cannot deadlock. lock_timeout limits the wait for each row, and for other locks
-- in the rest of the transaction. Only this function and the installation of definitions
-- insert slots, and they always insert all slots. So no slot is left at the token of an
-- earlier holder.
CREATE OR REPLACE FUNCTION "sexton".raise_fence(fence_key text, new_token bigint, lock_timeout text, OUT token bigint, OUT digest text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $sexton$
DECLARE
    slots bigint;
BEGIN
    PERFORM pg_catalog.set_config('lock_timeout', lock_timeout, true);

    WITH raised AS (
        UPDATE "sexton".fences AS fence
        SET token = greatest(fence.token, new_token)
        WHERE fence.key = fence_key
        RETURNING fence.token, fence.digest
    )
    SELECT pg_catalog.count(*), pg_catalog.max(raised.token), coalesce(pg_catalog.max(raised.digest), '')
    INTO slots, raise_fence.token, raise_fence.digest
    FROM raised;

    IF slots = 32 THEN
        RETURN;
    END IF;

    WITH raised AS (
        INSERT INTO "sexton".fences AS fence (key, slot, token)
        SELECT fence_key, series.n, new_token
        FROM pg_catalog.generate_series(0, 31) AS series (n)
        ORDER BY series.n
        ON CONFLICT (key, slot) DO UPDATE
        SET token = greatest(fence.token, EXCLUDED.token)
        RETURNING fence.token, fence.digest
    )
    SELECT pg_catalog.max(raised.token), coalesce(pg_catalog.max(raised.digest), '')
    INTO raise_fence.token, raise_fence.digest
    FROM raised;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".raise_fence(text, bigint, text) IS 'Sexton: raises the fence of a lease in all slots';
