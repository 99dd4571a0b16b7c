-- Returns the schedules of live workers that the leader $1 lacks, with these workers. A worker that sent no heartbeat for
-- $2 seconds is not live.
SELECT pg_catalog.split_part(wanted.schedule, '/', 1), pg_catalog.split_part(wanted.schedule, '/', 2),
    pg_catalog.array_agg(client.client_id ORDER BY client.client_id)
FROM "sexton".clients AS leader
CROSS JOIN "sexton".clients AS client
CROSS JOIN LATERAL pg_catalog.unnest(client.schedules) AS wanted (schedule)
WHERE leader.client_id = $1
  AND client.seen_at >= pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $2::pg_catalog.float8)
  AND wanted.schedule <> ALL (leader.schedules)
GROUP BY wanted.schedule
ORDER BY wanted.schedule;
