INSERT INTO "sexton".undo_state (keep) VALUES ('0') ON CONFLICT (one) DO NOTHING;

-- The ids of each database start at a different number, because tombstones in one
-- database may have origins in another.
SELECT pg_catalog.setval('"sexton".undo_ids', (1 + pg_catalog.floor(pg_catalog.random() * 999999))::bigint * 1000000000)
FROM "sexton".undo_ids AS ids
WHERE NOT ids.is_called;
