-- name: LeaseLook :one
-- Who holds a lease that could not be had. One that has been given back since ends at -infinity, which Go does not know.
SELECT holder, greatest(expires_at, acquired_at)::pg_catalog.timestamptz AS expires_at
FROM "sexton".leases
WHERE key = @key;

-- name: FenceDigest :one
-- The generation that is installed for a lease in this database, empty where none is recorded. Behind the lock no installation commits
-- before the caller's transaction.
SELECT coalesce(pg_catalog.max(fence.digest), '')::pg_catalog.text AS digest
FROM (SELECT one.digest FROM "sexton".fences AS one WHERE one.key = @key AND one.slot = 0 FOR SHARE) AS fence;

-- name: FenceDigests :many
SELECT key, coalesce(digest, '')::pg_catalog.text AS digest
FROM "sexton".fences
WHERE slot = 0
  AND key = ANY (@keys::pg_catalog.text[]);

-- name: FencesInstall :execrows
-- Moves the generation of a job's leases, those of databases that are no longer configured included, and lifts their fences with it:
-- no batch of an earlier generation commits after this.
WITH wanted AS (
    SELECT wanted.key FROM pg_catalog.unnest(@keys::pg_catalog.text[]) AS wanted (key)
    UNION
    SELECT fence.key FROM "sexton".fences AS fence WHERE @prefix::pg_catalog.text <> '' AND pg_catalog.starts_with(fence.key, @prefix::pg_catalog.text)
)
INSERT INTO "sexton".fences AS fence (key, slot, token, digest)
SELECT wanted.key, slots.n, 1, @digest::pg_catalog.text
FROM wanted
CROSS JOIN pg_catalog.generate_series(0, 31) AS slots (n)
ORDER BY wanted.key, slots.n
ON CONFLICT (key, slot) DO UPDATE
SET token = fence.token + 1,
    digest = EXCLUDED.digest
WHERE fence.digest IS DISTINCT FROM EXCLUDED.digest;

-- name: GenerationRead :many
SELECT digest, entries
FROM "sexton".generations
WHERE kind = @kind;

-- name: GenerationInstall :exec
INSERT INTO "sexton".generations AS generation (kind, digest, entries)
VALUES (@kind, @digest, @entries)
ON CONFLICT (kind) DO UPDATE
SET digest = EXCLUDED.digest,
    entries = EXCLUDED.entries,
    installed_at = pg_catalog.clock_timestamp()
WHERE generation.digest <> EXCLUDED.digest;

-- name: LeaseBegin :one
-- Takes a lease, enters a run of kind, where it is not empty, in the history, and raises the lease's fence, where that is in this database:
-- one round trip, and one transaction, so a fence that an earlier holder has locked takes back all three. Token and fence are 0 where the lease
-- could not be had.
--
-- The row outlives its holders: the token must never start again. A row that is there is updated,
-- since ON CONFLICT also locks it, which is a record of the log: only the first holder inserts, and
-- a race of two ends at the conflict. If the caller's process does not work under the key (own), a
-- lease of the caller is left over from a lost answer or a crash of the server. A caller of another
-- generation of definitions gets none. The fence decides, whose generation comes with its rows as
-- they are after the wait for an installation.
WITH bounded AS MATERIALIZED (
    SELECT pg_catalog.set_config('lock_timeout', @lock_timeout::pg_catalog.text, true) AS lock_timeout, pg_catalog.clock_timestamp() AS at
), run AS (
    INSERT INTO "sexton".runs (kind, database, holder, started_at)
    SELECT @kind::pg_catalog.text, @database::pg_catalog.text, @holder::pg_catalog.text, bounded.at
    FROM bounded
    WHERE bounded.lock_timeout IS NOT NULL
      AND @kind::pg_catalog.text <> ''
    RETURNING id
), fitting AS (
    SELECT bounded.at, bounded.at + pg_catalog.make_interval(secs => @ttl_seconds::pg_catalog.float8) AS until
    FROM bounded
    WHERE bounded.lock_timeout IS NOT NULL
      AND NOT @refused::boolean
      AND (@digest::pg_catalog.text = '' OR NOT EXISTS (
          SELECT FROM "sexton".fences AS fence WHERE fence.key = @key::pg_catalog.text AND fence.slot = 0 AND fence.digest <> @digest::pg_catalog.text
      ))
), taken AS (
    UPDATE "sexton".leases AS lease
    SET token = lease.token + 1,
        holder = @holder::pg_catalog.text,
        acquired_at = fitting.at,
        expires_at = fitting.until
    FROM fitting
    WHERE lease.key = @key::pg_catalog.text
      AND (lease.expires_at <= pg_catalog.clock_timestamp() OR @own::boolean AND lease.holder = @holder::pg_catalog.text)
    RETURNING lease.token, lease.acquired_at
), first AS (
    INSERT INTO "sexton".leases (key, token, holder, acquired_at, expires_at)
    SELECT @key::pg_catalog.text, 1, @holder::pg_catalog.text, fitting.at, fitting.until
    FROM fitting
    WHERE NOT EXISTS (SELECT FROM "sexton".leases AS lease WHERE lease.key = @key::pg_catalog.text)
    ON CONFLICT (key) DO NOTHING
    RETURNING token, acquired_at
), granted AS (
    SELECT token, acquired_at FROM taken
    UNION ALL
    SELECT token, acquired_at FROM first
), raised AS MATERIALIZED (
    SELECT lifted.token, lifted.digest
    FROM granted
    CROSS JOIN LATERAL "sexton".raise_fence(@key::pg_catalog.text, granted.token, @lock_timeout::pg_catalog.text) AS lifted (token, digest)
    WHERE @fenced::boolean
)
SELECT
    coalesce((SELECT run.id FROM run), 0)::bigint AS run_id,
    coalesce((SELECT granted.token FROM granted), 0)::bigint AS token,
    coalesce((SELECT granted.acquired_at FROM granted), 'epoch')::pg_catalog.timestamptz AS acquired_at,
    coalesce((SELECT raised.token FROM raised), 0)::bigint AS fence,
    coalesce((SELECT raised.digest FROM raised), '')::pg_catalog.text AS digest;

-- name: LeaseAdvance :execrows
-- Lifts the holder's own token over a fence that is higher, as after the restore of an old backup. A late
-- statement lowers nothing: the next holder's token would be one that is in use.
UPDATE "sexton".leases
SET token = greatest(token, @token::bigint)
WHERE key = @key
  AND holder = @holder
  AND acquired_at = @acquired_at
  AND expires_at > pg_catalog.clock_timestamp();

-- name: LeaseRenew :execrows
UPDATE "sexton".leases
SET expires_at = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => @ttl_seconds::pg_catalog.float8)
WHERE key = @key
  AND token = @token
  AND holder = @holder
  AND acquired_at = @acquired_at
  AND expires_at > pg_catalog.clock_timestamp();

-- name: LeaseKept :one
SELECT EXISTS (
    SELECT FROM "sexton".leases
    WHERE key = @key
      AND token = @token
      AND holder = @holder
      AND acquired_at = @acquired_at
)::boolean AS kept;

-- name: LeaseRelease :execrows
-- Not now: where the server's clock is set back, now comes again. The token may have been lifted by a statement whose answer got lost.
UPDATE "sexton".leases
SET expires_at = '-infinity'
WHERE key = @key
  AND holder = @holder
  AND acquired_at = @acquired_at;

-- name: LeasesHeld :many
SELECT key, token, holder, acquired_at, expires_at, EXISTS (
    SELECT FROM "sexton".clients AS client
    WHERE client.client_id = lease.holder
      AND client.seen_at >= pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => @silence_seconds::pg_catalog.float8)
)::boolean AS alive
FROM "sexton".leases AS lease
WHERE expires_at > pg_catalog.clock_timestamp()
ORDER BY key;

-- name: FenceRaise :one
-- The generation comes with the rows as they are now, after the wait for an installation that
-- held them.
SELECT raised.token::bigint AS token, raised.digest::pg_catalog.text AS digest
FROM "sexton".raise_fence(@key::pg_catalog.text, @token::bigint, @lock_timeout::pg_catalog.text) AS raised (token, digest);
