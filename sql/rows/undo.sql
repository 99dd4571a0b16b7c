INSERT INTO "sexton".undo_state (keep) VALUES ('0') ON CONFLICT (one) DO NOTHING;

-- Databases begin at different numbers, because origins travel between them.
SELECT pg_catalog.setval('"sexton".undo_ids', (1 + pg_catalog.floor(pg_catalog.random() * 999999))::bigint * 1000000000)
FROM "sexton".undo_ids AS ids
WHERE NOT ids.is_called;
