-- Whether each run has ended so long ago that no figure changes any more: a younger run may be seen first, as ids are given before the
-- commit, and the counts of a failed run are added after its end, within a minute.
SELECT run.id, coalesce(run.ended_at < clock_timestamp() - interval '2 minutes', false), run.stats
FROM "sexton".runs AS run
WHERE run.kind = ANY ($1) AND run.id > $2
ORDER BY run.id
