SELECT coalesce(max(run.id), 0) FROM "sexton".runs AS run
