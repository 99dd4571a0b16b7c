-- Follows a job that enqueue has put in: one row, or none for an id that there is not, or no more. Finished jobs are
-- kept for a day.
--
-- The arguments are not shown, as they may tell about persons; the caller who enqueued the job knows them. The outcome is that
-- of the run, by which a job that went through may still have been skipped or cut short; see "sexton".runs.
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
