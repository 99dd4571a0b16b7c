INSERT INTO "sexton".undo_marks AS mark (unit, id, number, restored) VALUES ($1, $2, $3, $4)
ON CONFLICT (unit, number) DO UPDATE SET restored = EXCLUDED.restored, marked_at = pg_catalog.clock_timestamp()
