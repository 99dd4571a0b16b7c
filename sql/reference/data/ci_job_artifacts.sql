INSERT INTO ci_job_artifacts (
    id, job_id, partition_id, pipeline_id, project_id, file_type, file, size, created_at, expire_at
)
SELECT
    new.n,
    p_ci_builds.id,
    p_ci_builds.partition_id,
    p_ci_builds.commit_id,
    p_ci_builds.project_id,
    1 + new.n % 4,
    (ARRAY['artifacts.zip', 'metadata.gz', 'job.log', 'junit.xml.gz'])[1 + new.n % 4],
    pg_temp.skewed(new.n, 1, 50000000, 4),
    p_ci_builds.finished_at,
    p_ci_builds.finished_at + interval '43200 minutes'
FROM (
    SELECT n, 1 + (n - 1) * @p_ci_builds / @ci_job_artifacts AS job_id
    FROM generate_series(@first::bigint, @last::bigint) AS n
) AS new
JOIN p_ci_builds ON p_ci_builds.id = new.job_id;
