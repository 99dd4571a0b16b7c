-- These statements read and write the state of one diff. They may run in a batch with the
-- application's path, so operators are qualified.

-- name: DiffClaim :execrows
INSERT INTO "sexton".external_diffs AS ledger (diff_id, token, holder, busy_until)
VALUES (@diff_id, @token, @holder::pg_catalog.text, pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => @seconds::pg_catalog.float8))
ON CONFLICT (diff_id) DO UPDATE
SET token = EXCLUDED.token,
    holder = EXCLUDED.holder,
    busy_until = EXCLUDED.busy_until
WHERE ledger.busy_until IS NULL
   OR ledger.busy_until OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp();

-- name: DiffBusy :one
SELECT coalesce(holder, '')::pg_catalog.text AS holder, coalesce(busy_until, pg_catalog.clock_timestamp())::pg_catalog.timestamptz AS until,
    coalesce(extract(epoch FROM busy_until OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()), 0)::pg_catalog.float8 AS seconds
FROM "sexton".external_diffs
WHERE diff_id OPERATOR(pg_catalog.=) @diff_id::bigint;

-- name: DiffConfirm :execrows
-- Locks the claim, so that no other worker can take it before the transaction ends.
SELECT
FROM "sexton".external_diffs
WHERE diff_id OPERATOR(pg_catalog.=) @diff_id::bigint
  AND token OPERATOR(pg_catalog.=) @token::bigint
  AND busy_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
FOR UPDATE;

-- name: DiffSettle :exec
-- Records that a diff was moved, and ends the claim.
UPDATE "sexton".external_diffs
SET size = @size::bigint,
    sha256 = @sha256,
    moved_at = pg_catalog.clock_timestamp(),
    skip_reason = NULL,
    skip_state = NULL,
    skipped_at = NULL,
    busy_until = NULL,
    holder = NULL
WHERE diff_id OPERATOR(pg_catalog.=) @diff_id::bigint
  AND token OPERATOR(pg_catalog.=) @token::bigint;

-- name: DiffKeep :exec
-- Records that a diff was restored to the database.
UPDATE "sexton".external_diffs
SET kept = true,
    size = NULL,
    sha256 = NULL,
    moved_at = NULL
WHERE diff_id OPERATOR(pg_catalog.=) @diff_id::bigint
  AND token OPERATOR(pg_catalog.=) @token::bigint;

-- name: DiffOrphan :exec
-- Queues an object for removal, unless it is queued already. The trigger on deleted diffs
-- does not queue the object if the snapshot of the deletion is older than the claim.
INSERT INTO "sexton".external_diff_removals (diff_id, key, store)
SELECT @diff_id::bigint, @key::pg_catalog.text, @store::integer
WHERE NOT EXISTS (SELECT FROM "sexton".external_diff_removals AS queued
    WHERE queued.diff_id OPERATOR(pg_catalog.=) @diff_id::bigint AND queued.key OPERATOR(pg_catalog.=) @key::pg_catalog.text
      AND (queued.store IS NULL OR queued.store OPERATOR(pg_catalog.=) @store::integer));

-- name: RemoveNext :one
INSERT INTO "sexton".external_diff_removals (diff_id, key, store)
VALUES (@diff_id, @key, @store::integer)
RETURNING id;
