-- name: DiffSkipped :many
SELECT skipped.skip_reason::pg_catalog.text AS reason, pg_catalog.count(*)
FROM (SELECT ledger.skip_reason FROM "sexton".external_diffs AS ledger WHERE ledger.skip_reason IS NOT NULL LIMIT @most) AS skipped
GROUP BY skipped.skip_reason;

-- name: DiffCursor :one
INSERT INTO "sexton".external_diff_cursors AS cursor (rule, after_id)
VALUES (@rule, 0)
ON CONFLICT (rule) DO UPDATE SET rule = EXCLUDED.rule
RETURNING after_id,
    (round_began_at <= pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => @seconds::pg_catalog.float8))::boolean AS old;

-- name: DiffCursorAdvance :exec
UPDATE "sexton".external_diff_cursors
SET after_id = @after_id,
    round_began_at = CASE WHEN @restart::boolean THEN pg_catalog.clock_timestamp() ELSE round_began_at END
WHERE rule = @rule;

-- name: DiffPresent :many
SELECT diff.id FROM "public".merge_request_diffs AS diff WHERE diff.id OPERATOR(pg_catalog.=) ANY (@ids::bigint[]) ORDER BY diff.id;

-- name: DiffExternal :many
SELECT diff.id FROM "public".merge_request_diffs AS diff
WHERE diff.stored_externally AND diff.id > @after::bigint
ORDER BY diff.id
LIMIT @most;

-- name: DiffExists :one
SELECT EXISTS (SELECT FROM "public".merge_request_diffs AS diff WHERE diff.id OPERATOR(pg_catalog.=) @id::bigint);

-- name: DiffKeys :many
SELECT pg_catalog.format('merge_request_diffs/mr-%s/%s', diff.merge_request_id, diff.external_diff)::pg_catalog.text AS key
FROM "public".merge_request_diffs AS diff
WHERE diff.id = ANY (@ids::bigint[]) AND diff.stored_externally;

-- name: DiffRenew :execrows
UPDATE "sexton".external_diffs
SET busy_until = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => @seconds::pg_catalog.float8)
WHERE diff_id = @diff_id::bigint
  AND token = @token::bigint
  AND busy_until > pg_catalog.clock_timestamp();

-- name: DiffRelease :exec
-- Ends the claim of a diff. Deletes the diff's row if the row has no other state, or if
-- the diff was deleted. The token ensures that a late worker ends only its own claim.
WITH idle AS (
    DELETE FROM "sexton".external_diffs
    WHERE diff_id = @diff_id::bigint
      AND token = @token::bigint
      AND (
          sha256 IS NULL AND skip_reason IS NULL AND NOT kept
          OR NOT EXISTS (SELECT FROM "public".merge_request_diffs AS diff WHERE diff.id = @diff_id::bigint)
      )
    RETURNING diff_id
)
UPDATE "sexton".external_diffs AS ledger
SET busy_until = NULL, holder = NULL
WHERE ledger.diff_id = @diff_id::bigint
  AND ledger.token = @token::bigint
  AND NOT EXISTS (SELECT FROM idle);

-- name: DiffQuarantine :exec
UPDATE "sexton".external_diffs
SET busy_until = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => @seconds::pg_catalog.float8),
    holder = 'a deletion that may still arrive'
WHERE diff_id = @diff_id::bigint
  AND token = @token::bigint;

-- name: DiffSkip :exec
UPDATE "sexton".external_diffs
SET skip_reason = @reason::pg_catalog.text,
    skip_state = @state::pg_catalog.text,
    skipped_at = pg_catalog.clock_timestamp()
WHERE diff_id = @diff_id::bigint
  AND token = @token::bigint;

-- name: DiffUnkeep :one
WITH released AS (
    UPDATE "sexton".external_diffs SET kept = false WHERE diff_id = @diff_id::bigint AND kept RETURNING diff_id
)
SELECT EXISTS (SELECT FROM released) AS released,
    EXISTS (SELECT FROM "public".merge_request_diffs AS diff WHERE diff.id = @diff_id::bigint) AS there;
