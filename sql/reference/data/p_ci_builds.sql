INSERT INTO p_ci_builds (
    id, partition_id, commit_id, project_id, user_id, name, stage, status, created_at, finished_at
)
SELECT
    new.n,
    ci_pipelines.partition_id,
    ci_pipelines.id,
    ci_pipelines.project_id,
    ci_pipelines.user_id,
    (ARRAY['compile', 'assets', 'unit 1/6', 'unit 2/6', 'unit 3/6', 'unit 4/6', 'unit 5/6', 'unit 6/6', 'browser', 'lint', 'licences', 'image', 'scan', 'review app', 'pages'])
        [1 + new.n % 15],
    (ARRAY['build', 'build', 'test', 'test', 'test', 'test', 'test', 'test', 'test', 'test', 'test', 'package', 'package', 'deploy', 'deploy'])
        [1 + new.n % 15],
    CASE WHEN new.n % 15 > 0 THEN 'success' ELSE ci_pipelines.status END,
    ci_pipelines.created_at + new.n % 15 * interval '1 minute',
    ci_pipelines.created_at + (1 + new.n % 15) * interval '1 minute'
FROM (
    SELECT n, 1 + (n - 1) * @ci_pipelines / @p_ci_builds AS pipeline_id
    FROM generate_series(@first::bigint, @last::bigint) AS n
) AS new
JOIN ci_pipelines ON ci_pipelines.id = new.pipeline_id;
