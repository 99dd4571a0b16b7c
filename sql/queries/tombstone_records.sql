-- name: TombstonesFailed :many
-- Returns the failed tombstones of parents in the order of the index, and their number.
-- Per parent it reads two ranges of the index up to a limit: due tombstones and deferred
-- ones.
SELECT
    pending.id,
    pending.fully_qualified_table_name::pg_catalog.text AS "table",
    coalesce(pending.primary_key_value::pg_catalog.text, pending.primary_key_text, '')::pg_catalog.text AS key,
    pending.cleanup_attempts::bigint AS attempts,
    pending.last_error,
    pending.consume_after,
    (pending.consume_after > pg_catalog.now())::boolean AS deferred,
    extract(epoch FROM pg_catalog.now() - pending.created_at)::pg_catalog.float8 AS age_seconds,
    pg_catalog.count(*) OVER () AS total
FROM pg_catalog.unnest(@parents::pg_catalog.text[]) AS parent (name)
CROSS JOIN (
    VALUES ('-infinity'::pg_catalog.timestamptz, pg_catalog.now()), (pg_catalog.now() + interval '1 microsecond', 'infinity'::pg_catalog.timestamptz)
) AS stretch (first, last)
CROSS JOIN LATERAL (
    SELECT waiting.*
    FROM "public".loose_foreign_keys_deleted_records AS waiting
    WHERE waiting.fully_qualified_table_name = parent.name AND waiting.status = 1
      AND waiting.consume_after >= stretch.first AND waiting.consume_after <= stretch.last
    ORDER BY waiting.consume_after, waiting.id
    LIMIT @span::bigint
) AS pending
WHERE pending.cleanup_attempts > 0 OR pending.consume_after > pg_catalog.now()
ORDER BY pending.fully_qualified_table_name, pending.consume_after, pending.id
LIMIT @most::bigint;

-- name: TombstonesPage :many
-- Reads a page of a parent's tombstones after a position and returns the failed
-- tombstones among them. If @wanted is not 0, it returns only the tombstone with that id.
-- It also returns the last tombstone of a full page, which is the next position. Times
-- are texts because they may be infinite.
SELECT page.at, page.id, page.failed, page.wanted, page.last
FROM (
    SELECT tombstone.consume_after::pg_catalog.text AS at, tombstone.id,
           (tombstone.cleanup_attempts > 0 OR tombstone.consume_after > pg_catalog.now())::boolean AS failed,
           (@wanted::bigint IN (0, tombstone.id))::boolean AS wanted,
           (pg_catalog.row_number() OVER (ORDER BY tombstone.consume_after, tombstone.id) = @size::bigint)::boolean AS last
    FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name = @parent
      AND tombstone.status = 1
      AND (tombstone.consume_after, tombstone.id) > ((@after::pg_catalog.text)::pg_catalog.timestamptz, @id::bigint)
    ORDER BY tombstone.consume_after, tombstone.id
    LIMIT @size::bigint
) AS page
WHERE page.wanted AND (page.failed OR @wanted::bigint <> 0) OR page.last
ORDER BY page.last, page.at::pg_catalog.timestamptz, page.id;

-- name: TombstonesRetry :one
-- Makes tombstones of a parent due and counts them. It skips tombstones that are locked
-- or that another session has just changed. It keeps the reason of the last failure until
-- the next attempt.
WITH wanted AS (
    SELECT tombstone.consume_after, tombstone.id
    FROM ROWS FROM (pg_catalog.unnest(@ids::bigint[]), pg_catalog.unnest(@times::pg_catalog.text[])) AS place (id, consume_after)
    JOIN "public".loose_foreign_keys_deleted_records AS tombstone
        ON tombstone.fully_qualified_table_name = @parent
        AND tombstone.consume_after = place.consume_after::pg_catalog.timestamptz
        AND tombstone.id = place.id
        AND tombstone.status = 1
), free AS (
    SELECT tombstone.consume_after, tombstone.id
    FROM wanted
    JOIN "public".loose_foreign_keys_deleted_records AS tombstone
        ON tombstone.fully_qualified_table_name = @parent
        AND tombstone.consume_after = wanted.consume_after
        AND tombstone.id = wanted.id
        AND tombstone.status = 1
    FOR UPDATE OF tombstone SKIP LOCKED
), retried AS (
    UPDATE "public".loose_foreign_keys_deleted_records AS tombstone
    SET consume_after = pg_catalog.clock_timestamp(),
        cleanup_attempts = 0
    FROM free
    WHERE tombstone.fully_qualified_table_name = @parent
      AND tombstone.consume_after = free.consume_after
      AND tombstone.id = free.id
    RETURNING 1
)
SELECT (SELECT pg_catalog.count(*) FROM retried) AS retried, (SELECT pg_catalog.count(*) FROM wanted) AS found;

-- name: TombstonesCount :one
-- Counts the pending tombstones of a parent, up to a cap.
SELECT pg_catalog.count(*)
FROM (
    SELECT
    FROM "public".loose_foreign_keys_deleted_records AS waiting
    WHERE waiting.fully_qualified_table_name = @parent AND waiting.status = 1
    LIMIT @most::bigint
) AS counted;

-- name: TombstonesByDue :one
-- Counts the due and the deferred tombstones of a parent, each up to a cap.
SELECT (SELECT pg_catalog.count(*) FROM (
           SELECT
           FROM "public".loose_foreign_keys_deleted_records AS due
           WHERE due.fully_qualified_table_name = @parent AND due.status = 1 AND due.consume_after <= pg_catalog.now()
           LIMIT @most::bigint
       ) AS counted) AS due,
       (SELECT pg_catalog.count(*) FROM (
           SELECT
           FROM "public".loose_foreign_keys_deleted_records AS deferred
           WHERE deferred.fully_qualified_table_name = @parent AND deferred.status = 1 AND deferred.consume_after > pg_catalog.now()
           LIMIT @most::bigint
       ) AS counted) AS deferred;

-- name: TombstonesDueKeys :many
-- Returns the keys of due tombstones of a parent, oldest first.
SELECT due.primary_key_value, due.primary_key_text
FROM "public".loose_foreign_keys_deleted_records AS due
WHERE due.fully_qualified_table_name = @parent AND due.status = 1 AND due.consume_after <= pg_catalog.now()
ORDER BY due.consume_after, due.id
LIMIT @most::bigint;
