-- Returns the unfinished job that destroys a group on behalf of a user, or NULL. The
-- function searches by the unique key that "sexton".enqueue computes, because a GIN index
-- on the arguments would have to scan its list of recent entries.
CREATE OR REPLACE FUNCTION "sexton".group_destroy_job(group_id "{group}", user_id "{user}")
RETURNS bigint
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
    SELECT job.id
    FROM "sexton".river_job AS job
    WHERE job.unique_key = pg_catalog.sha256(pg_catalog.convert_to(
            pg_catalog.format('&kind=group_destroy&args={"group_id":%s,"user_id":%s}', 
                "sexton".job_argument('{argument}', pg_catalog.to_jsonb(group_destroy_job.group_id)),
                "sexton".job_argument('{argument}', coalesce(pg_catalog.to_jsonb(group_destroy_job.user_id), {nobody}))), 'UTF8'))
      AND job.unique_states IS NOT NULL
      AND "sexton".river_job_state_in_bitmask(job.unique_states, job.state);
$sexton$;

COMMENT ON FUNCTION "sexton".group_destroy_job("{group}", "{user}") IS 'Sexton: the unfinished job that destroys a group';
