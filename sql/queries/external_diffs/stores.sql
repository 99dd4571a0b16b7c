-- name: StoreSelf :one
-- The identity of this installation, and what it knows of the store.
SELECT installation.id::pg_catalog.text AS installation, "sexton".external_diff_place()::pg_catalog.text AS server,
    pg_catalog.current_database()::pg_catalog.text AS database,
    coalesce(store.seal::pg_catalog.text, '')::pg_catalog.text AS seal,
    coalesce(store.next_seal::pg_catalog.text, '')::pg_catalog.text AS next,
    ARRAY(
        SELECT one.seal::pg_catalog.text
        FROM "sexton".external_diff_stores AS other
        CROSS JOIN LATERAL pg_catalog.unnest(ARRAY[other.seal, other.next_seal]) AS one (seal)
        WHERE one.seal IS NOT NULL
    )::pg_catalog.text[] AS seals,
    (store.store IS NOT NULL)::boolean AS known, (store.sealed_at IS NOT NULL)::boolean AS sealed, pg_catalog.clock_timestamp()::pg_catalog.timestamptz AS now
FROM "sexton".external_diff_installation AS installation
LEFT JOIN "sexton".external_diff_stores AS store ON store.store = @store;

-- name: StoreIntroduce :one
INSERT INTO "sexton".external_diff_stores AS store (store) VALUES (@store)
ON CONFLICT (store) DO UPDATE SET store = EXCLUDED.store
RETURNING coalesce(store.next_seal, store.seal)::pg_catalog.text AS seal;

-- name: StoreAcquaint :exec
INSERT INTO "sexton".external_diff_stores AS store (store, seal, sealed_at)
VALUES (@store, CAST(@seal::pg_catalog.text AS pg_catalog.uuid), pg_catalog.clock_timestamp())
ON CONFLICT (store) DO UPDATE SET sealed_at = pg_catalog.clock_timestamp() WHERE store.sealed_at IS NULL;

-- name: StoreAdopt :one
INSERT INTO "sexton".external_diff_stores AS store (store, next_seal) VALUES (@store, pg_catalog.gen_random_uuid())
ON CONFLICT (store) DO UPDATE
SET next_seal = pg_catalog.gen_random_uuid(), server_started_at = pg_catalog.pg_postmaster_start_time(), hold_until = NULL
RETURNING next_seal::pg_catalog.text AS next;

-- name: StoreHold :exec
UPDATE "sexton".external_diff_stores
SET server_started_at = pg_catalog.pg_postmaster_start_time(),
    hold_until = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => @seconds::pg_catalog.float8)
WHERE store = @store
  AND server_started_at <> pg_catalog.pg_postmaster_start_time();

-- name: StoreNextSeal :one
UPDATE "sexton".external_diff_stores
SET next_seal = coalesce(next_seal, pg_catalog.gen_random_uuid())
WHERE store = @store
  AND (next_seal IS NOT NULL OR sealed_at <= pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => @seconds::pg_catalog.float8))
  AND (hold_until IS NULL OR hold_until <= pg_catalog.clock_timestamp())
RETURNING next_seal::pg_catalog.text AS next;

-- name: StoreSealed :exec
UPDATE "sexton".external_diff_stores
SET seal = next_seal,
    next_seal = NULL,
    sealed_at = pg_catalog.clock_timestamp()
WHERE store = @store
  AND next_seal = CAST(@seal::pg_catalog.text AS pg_catalog.uuid);

-- name: SweepBegin :exec
UPDATE "sexton".external_diff_stores
SET sweep_after = '', sweep_began_at = pg_catalog.clock_timestamp(), sweep_ended_at = NULL,
    listed = 0, swept = 0, foreign_objects = 0, held_back = 0
WHERE store = @store
  AND (sweep_began_at IS NULL OR sweep_ended_at IS NOT NULL)
  AND (hold_until IS NULL OR hold_until <= pg_catalog.clock_timestamp())
  AND coalesce(sweep_began_at, first_used_at) <= pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => @seconds::pg_catalog.float8);

-- name: SweepPlace :one
SELECT store.sweep_after
FROM "sexton".external_diff_stores AS store
WHERE store.store = @store
  AND store.sweep_began_at IS NOT NULL
  AND store.sweep_ended_at IS NULL
  AND (store.hold_until IS NULL OR store.hold_until <= pg_catalog.clock_timestamp());

-- name: SweepAdvance :exec
UPDATE "sexton".external_diff_stores
SET sweep_after = coalesce(sqlc.narg('after')::pg_catalog.text, sweep_after),
    listed = listed + @listed,
    swept = swept + @swept,
    foreign_objects = foreign_objects + @foreign_objects,
    held_back = held_back + @held_back,
    sweep_ended_at = CASE WHEN @ended::boolean THEN pg_catalog.clock_timestamp() END
WHERE store = @store;
