-- name: RemovalTake :one
-- Takes a due entry and hides it from other workers for the time that its removal may
-- take.
UPDATE "sexton".external_diff_removals AS removal
SET not_before = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => @seconds::pg_catalog.float8),
    attempts = removal.attempts + 1
WHERE removal.id = (
    SELECT due.id
    FROM "sexton".external_diff_removals AS due
    WHERE due.not_before <= pg_catalog.statement_timestamp()
    ORDER BY due.not_before, due.id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
RETURNING removal.id, removal.diff_id, removal.key, removal.store;

-- name: RemovalDelete :exec
DELETE FROM "sexton".external_diff_removals WHERE id = @id;

-- name: RemovalDefer :exec
UPDATE "sexton".external_diff_removals
SET not_before = pg_catalog.clock_timestamp() + pg_catalog.make_interval(
        secs => least(@seconds::pg_catalog.float8 OPERATOR(pg_catalog.*) pg_catalog.power(2, least(attempts - 1, 10)), 3600)::pg_catalog.float8
    ),
    last_error = @reason::pg_catalog.text
WHERE id = @id;

-- name: RemovalInUse :one
-- Reports whether a row refers to an object in a store. If @store is NULL, an object with
-- this key in any store counts, because an application may have moved the object before
-- it updates the row.
SELECT EXISTS (
    SELECT FROM "public".merge_request_diffs AS diff
    WHERE diff.id = ANY (@diffs::bigint[])
      AND diff.stored_externally
      AND pg_catalog.format('merge_request_diffs/mr-%s/%s', diff.merge_request_id, diff.external_diff) = @key::pg_catalog.text
      AND (sqlc.narg('store')::integer IS NULL OR coalesce(diff.external_diff_store, 1) = sqlc.narg('store')::integer)
);
