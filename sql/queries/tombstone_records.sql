-- name: TombstonesList :many
-- The tombstones of some parents, failed ones first, in the order of the index, and how many there are. Per parent it reads two stretches of
-- the index of at most so many rows: of what is due, and of what is put off. Where an id is given, which is never 0, also its tombstone.
SELECT
    pending.id,
    pending.fully_qualified_table_name::pg_catalog.text AS "table",
    coalesce(pending.primary_key_value::pg_catalog.text, pending.primary_key_text, '')::pg_catalog.text AS key,
    pending.cleanup_attempts::bigint AS attempts,
    (pending.cleanup_attempts > 0 OR pending.consume_after > pg_catalog.now())::boolean AS failed,
    pending.last_error,
    pending.consume_after,
    (pending.consume_after > pg_catalog.now())::boolean AS deferred,
    extract(epoch FROM pg_catalog.now() - pending.created_at)::pg_catalog.float8 AS age_seconds,
    pg_catalog.count(*) OVER () AS total
FROM (
    SELECT tombstone.*
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
    ) AS tombstone
    UNION ALL
    SELECT named.*
    FROM "public".loose_foreign_keys_deleted_records AS named
    WHERE @id::bigint <> 0 AND named.id = @id::bigint AND named.status = 1
) AS pending
WHERE NOT @failed_only::boolean OR pending.cleanup_attempts > 0 OR pending.consume_after > pg_catalog.now()
ORDER BY failed DESC, pending.fully_qualified_table_name, pending.consume_after, pending.id
LIMIT @most::bigint;

-- name: TombstonesPage :many
-- Of so many tombstones of a parent behind a position, the ones with some ids, or, where these are NULL, the failed ones. The last one of a full
-- page comes as well: there may be more behind it. Times are texts since they may be infinite.
SELECT page.at, page.id, page.failed, page.wanted, page.last
FROM (
    SELECT tombstone.consume_after::pg_catalog.text AS at, tombstone.id,
           (tombstone.cleanup_attempts > 0 OR tombstone.consume_after > pg_catalog.now())::boolean AS failed,
           (sqlc.narg(ids)::bigint[] IS NULL OR tombstone.id = ANY (sqlc.narg(ids)::bigint[]))::boolean AS wanted,
           (pg_catalog.row_number() OVER (ORDER BY tombstone.consume_after, tombstone.id) = @size::bigint)::boolean AS last
    FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name = @parent
      AND tombstone.status = 1
      AND (tombstone.consume_after, tombstone.id) > ((@after::pg_catalog.text)::pg_catalog.timestamptz, @id::bigint)
    ORDER BY tombstone.consume_after, tombstone.id
    LIMIT @size::bigint
) AS page
WHERE page.wanted AND (page.failed OR sqlc.narg(ids)::bigint[] IS NOT NULL) OR page.last
ORDER BY page.last, page.at::pg_catalog.timestamptz, page.id;

-- name: TombstonesRetry :one
-- Makes tombstones of a parent due and counts those; the rest of the ones that are there are locked, or another session has just changed them. The
-- reason of the last failure stays until the next attempt, for a session that looks at the tombstone in between.
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

-- name: TombstonesTable :one
-- The name that tombstones of a table carry, in its present spelling, or "" where there is no such table.
SELECT coalesce((
    SELECT pg_catalog.format('%I.%I', namespace.nspname, class.relname)
    FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
    WHERE class.oid = pg_catalog.to_regclass(@recorded::pg_catalog.text) AND class.relkind = ANY ('{r,p}')
), '')::pg_catalog.text AS name;

-- name: TombstonesCount :one
-- Waiting tombstones of a parent that are no younger than a moment, counted up to a cap; NULL is without.
SELECT pg_catalog.count(*)
FROM (
    SELECT
    FROM "public".loose_foreign_keys_deleted_records AS waiting
    WHERE waiting.fully_qualified_table_name = @parent AND waiting.status = 1
      AND (sqlc.narg(until)::pg_catalog.timestamptz IS NULL OR waiting.created_at <= sqlc.narg(until)::pg_catalog.timestamptz)
    LIMIT sqlc.narg(most)::bigint
) AS counted;

-- name: TombstonesMove :execrows
-- Gives so many waiting tombstones of a parent, no younger than a moment, to another one, due now.
UPDATE "public".loose_foreign_keys_deleted_records AS chosen
SET fully_qualified_table_name = @new_parent::pg_catalog.text, parent_oid = pg_catalog.to_regclass(@new_parent::pg_catalog.text)::pg_catalog.oid,
    tracked_as = NULL, consume_after = pg_catalog.clock_timestamp(), cleanup_attempts = 0, settled_at = NULL
WHERE chosen.ctid = ANY (ARRAY(
    SELECT waiting.ctid
    FROM "public".loose_foreign_keys_deleted_records AS waiting
    WHERE waiting.fully_qualified_table_name = @parent AND waiting.status = 1 AND waiting.created_at <= @until
    ORDER BY waiting.consume_after, waiting.id
    LIMIT @most::bigint
    FOR UPDATE SKIP LOCKED
));

-- name: TombstonesDrop :execrows
-- Forgets so many waiting tombstones of a parent, no younger than a moment.
DELETE FROM "public".loose_foreign_keys_deleted_records AS chosen
WHERE chosen.ctid = ANY (ARRAY(
    SELECT waiting.ctid
    FROM "public".loose_foreign_keys_deleted_records AS waiting
    WHERE waiting.fully_qualified_table_name = @parent AND waiting.status = 1 AND waiting.created_at <= @until
    ORDER BY waiting.consume_after, waiting.id
    LIMIT @most::bigint
    FOR UPDATE SKIP LOCKED
));

-- name: Now :one
SELECT pg_catalog.clock_timestamp()::pg_catalog.timestamptz AS now;

-- name: RevivedList :many
-- Revived tombstones, the newest first, of one table or of all, and how many there are.
SELECT revived.id, revived.fully_qualified_table_name AS "table",
       coalesce(revived.primary_key_value::pg_catalog.text, revived.primary_key_text, '')::pg_catalog.text AS key,
       revived.created_at AS deleted_at, revived.settled_at::pg_catalog.timestamptz AS settled_at, pg_catalog.count(*) OVER () AS total
FROM "sexton".revived AS revived
WHERE @parent::pg_catalog.text = '' OR revived.fully_qualified_table_name = @parent
ORDER BY revived.settled_at DESC, revived.id DESC
LIMIT @most::bigint;

-- name: RevivedClear :many
-- Makes revived tombstones due. That they keep the time when they were settled says that their parents do not matter.
UPDATE "public".loose_foreign_keys_deleted_records AS tombstone
SET status = 1, consume_after = pg_catalog.clock_timestamp(), cleanup_attempts = 0
WHERE tombstone.ctid = ANY (ARRAY(SELECT revived.place FROM "sexton".revived AS revived WHERE revived.id = ANY (@ids::bigint[])))
    AND tombstone.status = 3
RETURNING tombstone.id;

-- name: TombstonesByDue :one
-- How many tombstones of a parent are due, and how many are put off, each counted up to a cap.
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
-- The keys of due tombstones of a parent, oldest first.
SELECT due.primary_key_value, due.primary_key_text
FROM "public".loose_foreign_keys_deleted_records AS due
WHERE due.fully_qualified_table_name = @parent AND due.status = 1 AND due.consume_after <= pg_catalog.now()
ORDER BY due.consume_after, due.id
LIMIT @most::bigint;
