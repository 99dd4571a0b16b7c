-- Completes a job that next_group has put off, which took $2 seconds.
UPDATE "sexton".river_job AS job
SET state = 'completed',
    finalized_at = pg_catalog.clock_timestamp(),
    attempted_at = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $2::pg_catalog.float8)
WHERE job.id OPERATOR(pg_catalog.=) $1
  AND job.state OPERATOR(pg_catalog.=) ANY ('{scheduled,available}'::"sexton".river_job_state[]);
