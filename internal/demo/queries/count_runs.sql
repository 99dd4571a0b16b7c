SELECT coalesce(sum(run.folded), 0)
FROM "sexton".runs AS run
WHERE run.kind = ANY ($1) AND run.id > $2
