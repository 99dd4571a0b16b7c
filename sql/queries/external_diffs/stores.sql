-- name: StoreInstallation :one
-- Returns the identity of this installation, and whether its marker was seen in the store
-- before.
SELECT installation.id::pg_catalog.text AS installation, "sexton".external_diff_place()::pg_catalog.text AS server,
    pg_catalog.current_database()::pg_catalog.text AS database,
    EXISTS (SELECT FROM "sexton".external_diff_stores AS store WHERE store.store = @store)::boolean AS known,
    pg_catalog.clock_timestamp()::pg_catalog.timestamptz AS now
FROM "sexton".external_diff_installation AS installation;

-- name: StoreAdd :exec
INSERT INTO "sexton".external_diff_stores (store) VALUES (@store) ON CONFLICT (store) DO NOTHING;
