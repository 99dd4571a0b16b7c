-- Returns the status of an enqueued job: one row, or none if the id does not exist.
-- Finished jobs are kept for a day.
--
-- The result does not include the arguments, which may contain personal data. The outcome
-- is the outcome of the job's run: a completed job may have been skipped or ended early.
-- See "sexton".runs.
CREATE OR REPLACE FUNCTION "sexton".job_status(job_id bigint)
RETURNS TABLE (
    kind text,
    state text,
    attempt integer,
    max_attempts integer,
    created_at timestamptz,
    scheduled_at timestamptz,
    attempted_at timestamptz,
    finalized_at timestamptz,
    last_error text,
    outcome text,
    run_id bigint
)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT
        job.kind,
        job.state::pg_catalog.text,
        job.attempt::integer,
        job.max_attempts::integer,
        job.created_at,
        job.scheduled_at,
        job.attempted_at,
        job.finalized_at,
        coalesce(job.errors[pg_catalog.array_upper(job.errors, 1)] ->> 'error', job.metadata #>> '{output,error}'),
        job.metadata #>> '{output,outcome}',
        nullif(job.metadata #>> '{output,run_id}', '0')::bigint
    FROM "sexton".river_job AS job
    WHERE job.id = job_status.job_id;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".job_status(bigint) IS 'Sexton: state, attempts, last error and outcome of a job';
