-- name: LeaseLook :one
-- Who holds a lease that could not be had. One that has been given back since ends at -infinity, which Go does not know.
SELECT token, holder, greatest(expires_at, acquired_at)::timestamptz AS expires_at, (expires_at > clock_timestamp())::boolean AS held
FROM "sexton".leases
WHERE key = @key;

-- name: LeaseAcquire :one
-- The row outlives its holders: the token must never start again. It looks before it inserts, as an attempt
-- that ends at the conflict locks the row and flushes; a race between the two ends there all the same. What the caller has seen
-- unchanged for longer than a lease lasts is over, whatever the server's clock says now.
INSERT INTO "sexton".leases AS lease (key, token, holder, acquired_at, expires_at)
SELECT @key, 1, @holder, clock_timestamp(), clock_timestamp() + make_interval(secs => @ttl_seconds::float8)
WHERE NOT EXISTS (
    SELECT FROM "sexton".leases AS taken
    WHERE taken.key = @key
      AND taken.expires_at > clock_timestamp()
      AND NOT (taken.token = @seen_token AND taken.expires_at = @seen_until::timestamptz)
)
ON CONFLICT (key) DO UPDATE
SET token = lease.token + 1,
    holder = EXCLUDED.holder,
    acquired_at = EXCLUDED.acquired_at,
    expires_at = EXCLUDED.expires_at
WHERE lease.expires_at <= clock_timestamp()
    OR (lease.token = @seen_token AND lease.expires_at = @seen_until::timestamptz)
RETURNING token, expires_at;

-- name: LeaseAdvance :execrows
-- Lifts the holder's own token over a fence that stands higher, as after the restore of an old backup.
UPDATE "sexton".leases
SET token = @new_token
WHERE key = @key
  AND token = @token
  AND expires_at > clock_timestamp();

-- name: LeaseRenew :execrows
UPDATE "sexton".leases
SET expires_at = clock_timestamp() + make_interval(secs => @ttl_seconds::float8)
WHERE key = @key
  AND token = @token
  AND expires_at > clock_timestamp();

-- name: LeaseRelease :execrows
-- Not now: where the server's clock is set back, now comes again.
UPDATE "sexton".leases
SET expires_at = '-infinity'
WHERE key = @key
  AND token = @token;

-- name: LeasesHeld :many
SELECT key, token, holder, acquired_at, expires_at
FROM "sexton".leases
WHERE expires_at > clock_timestamp()
ORDER BY key;

-- name: FenceRaise :one
-- The timeout is set in the statement that it bounds, and for that alone: one round trip instead of four.
WITH bounded AS MATERIALIZED (
    SELECT set_config('lock_timeout', @lock_timeout::text, true) AS lock_timeout
)
INSERT INTO "sexton".fences AS fence (key, token)
SELECT @key, @token
FROM bounded
WHERE bounded.lock_timeout IS NOT NULL
ON CONFLICT (key) DO UPDATE
SET token = greatest(fence.token, EXCLUDED.token)
RETURNING token;
