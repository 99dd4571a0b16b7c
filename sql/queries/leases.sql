-- name: LeaseHolder :one
-- Returns the holder of a lease. A released lease ends at -infinity, which Go cannot
-- represent.
SELECT holder, greatest(expires_at, acquired_at)::pg_catalog.timestamptz AS expires_at
FROM "sexton".leases
WHERE key = @key;

-- name: FenceDigest :one
-- Returns the generation that is installed for a lease in this database; empty if none
-- is. The row lock keeps an installation from committing before the caller's transaction
-- ends.
SELECT coalesce(pg_catalog.max(fence.digest), '')::pg_catalog.text AS digest
FROM (SELECT one.digest FROM "sexton".fences AS one WHERE one.key = @key AND one.slot = 0 FOR SHARE) AS fence;

-- name: FenceDigests :many
SELECT key, coalesce(digest, '')::pg_catalog.text AS digest
FROM "sexton".fences
WHERE slot = 0
  AND key = ANY (@keys::pg_catalog.text[]);

-- name: FencesInstall :execrows
-- Sets the generation of a job's leases, including leases of databases that are no longer
-- configured. It also raises their fences, so that no batch of an earlier generation
-- commits afterwards.
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
-- Acquires a lease, inserts a run of kind into the history unless kind is empty, and
-- raises the lease's fence if it is in this database. The statement is one round trip and
-- one transaction, so a lock timeout at the fence rolls back the lease, the run and the
-- fence. Token and fence are 0 if the lease could not be acquired.
--
-- The lease's row is never deleted, because the token must never start again. An existing
-- row is updated without ON CONFLICT, which would also lock the row and cost a WAL
-- record. Only the first holder inserts a row. If two callers race, one of them hits the
-- conflict and gets no lease. @own is true if the caller's process does not work under
-- the key. A lease of the caller is then left over from a lost answer or a crash of the
-- server, and the caller acquires it again. A caller with another generation of
-- definitions than the fence gets no lease. The caller must also compare the returned
-- digest, which is read after the wait for an installation.
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
-- Raises the holder's token above a higher fence, as after the restore of an old backup.
-- A late statement must not lower the token, because the next holder would get a token
-- that is in use.
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
-- Releases a lease. The lease ends at -infinity instead of now(), because the time now()
-- comes again if the server's clock is set back. The statement does not compare the
-- token, because a statement whose answer was lost may have raised it.
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
-- Raises a fence and returns its token and generation. The generation is read after the
-- wait for an installation that had locked the rows.
SELECT raised.token::bigint AS token, raised.digest::pg_catalog.text AS digest
FROM "sexton".raise_fence(@key::pg_catalog.text, @token::bigint, @lock_timeout::pg_catalog.text) AS raised (token, digest);
