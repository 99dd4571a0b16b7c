-- The first $1 stores that were used, the one that was used last first.
SELECT store.listed, store.swept, store.foreign_objects, store.held_back, 0::bigint,
    store.store, store.sealed_at, store.sweep_began_at, store.sweep_ended_at
FROM "sexton".external_diff_stores AS store
ORDER BY store.sealed_at DESC NULLS LAST, store.store
LIMIT $1
