-- name: ClientBeat :execrows
UPDATE "sexton".clients
SET seen_at = pg_catalog.clock_timestamp(),
    deaf = @deaf,
    held = @held,
    reload_error = @reload_error
WHERE client_id = @client_id;

-- name: ClientInsert :exec
INSERT INTO "sexton".clients (client_id, host, pid, started_at, seen_at, deaf, held, digests, schedules, foreground, reload_error)
VALUES (@client_id, @host, @pid, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(), @deaf, @held, @digests, @schedules, @foreground, @reload_error)
ON CONFLICT (client_id) DO UPDATE
SET seen_at = EXCLUDED.seen_at,
    deaf = EXCLUDED.deaf,
    held = EXCLUDED.held,
    reload_error = EXCLUDED.reload_error;

-- name: ClientsAlive :many
-- Returns the clients with a recent heartbeat. outdated has the leases whose installed
-- generation of definitions differs from the client's.
SELECT client_id, host, started_at, deaf, held, reload_error, ARRAY(
    SELECT own.key
    FROM pg_catalog.jsonb_each_text(client.digests) AS own (key, digest)
    JOIN "sexton".fences AS fence ON fence.key = own.key AND fence.slot = 0
    WHERE fence.digest <> own.digest
    ORDER BY own.key
)::pg_catalog.text[] AS outdated
FROM "sexton".clients AS client
WHERE NOT client.foreground
  AND seen_at >= pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => @silence_seconds::pg_catalog.float8)
ORDER BY client_id;

-- name: ClientsRemoveSilent :many
-- Removes the clients without a recent heartbeat. It skips locked rows, because such a
-- client is sending a heartbeat or is being removed by another process.
WITH silent AS (
    SELECT client.client_id
    FROM "sexton".clients AS client
    WHERE client.client_id <> @self
      AND client.seen_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => @silence_seconds::pg_catalog.float8)
    ORDER BY client.client_id
    FOR UPDATE SKIP LOCKED
)
DELETE FROM "sexton".clients AS gone
USING silent
WHERE gone.client_id = silent.client_id
RETURNING gone.client_id;

-- name: ClientRemove :exec
DELETE FROM "sexton".clients
WHERE client_id = @client_id;

-- name: ClientLeasesExpire :many
-- Ends the leases of clients. The statement must run in the transaction that removes the
-- clients' rows: without such a row no worker can detect later that a holder is dead.
UPDATE "sexton".leases
SET expires_at = '-infinity'
WHERE holder = ANY (@holders::pg_catalog.text[])
  AND expires_at > pg_catalog.clock_timestamp()
RETURNING key, holder;
