-- Completes a job that next_group has put off, which took $2 seconds.
UPDATE "sexton".river_job AS job
SET state = 'completed',
    finalized_at = pg_catalog.clock_timestamp(),
    attempted_at = pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $2::pg_catalog.float8)
WHERE job.id = $1
  AND job.state = ANY ('{scheduled,available}'::"sexton".river_job_state[]);
