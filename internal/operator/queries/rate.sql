-- Returns the speed of the kind $1 in rows per second, over its last 20 runs with changes. The speed is 0 without such runs.
SELECT coalesce(
    pg_catalog.sum(done.rows)::pg_catalog.float8 / greatest(pg_catalog.sum(extract(epoch FROM run.ended_at - run.started_at)), 0.001)::pg_catalog.float8,
    0)::pg_catalog.float8
FROM (
    SELECT runs.stats::pg_catalog.jsonb AS stats, runs.started_at, runs.ended_at FROM "sexton".runs
    WHERE runs.kind = $1 AND runs.changed AND runs.ended_at IS NOT NULL
    ORDER BY runs.id DESC
    LIMIT 20
) AS run
CROSS JOIN LATERAL (
    SELECT pg_catalog.sum(counted.value::bigint) AS rows
    FROM (VALUES ('moved'), ('deleted'), ('nullified')) AS part (name)
    CROSS JOIN LATERAL pg_catalog.jsonb_each_text(coalesce(run.stats -> part.name, '{}')) AS counted
) AS done
