-- Every second pipeline belongs to a merge request.
INSERT INTO ci_pipelines (
    id, partition_id, project_id, user_id, merge_request_id, ref, sha, status, duration, created_at, finished_at
)
SELECT
    n,
    CASE WHEN n <= @ci_pipelines / 2 THEN 100 ELSE 101 END,
    coalesce(merge_requests.target_project_id, pg_temp.project((n + 1) / 2, 1, @projects)),
    pg_temp.person(n, 2, @people),
    merge_requests.id,
    coalesce(merge_requests.source_branch, 'main'),
    pg_temp.sha(n, 3),
    (ARRAY['success', 'success', 'success', 'failed', 'canceled'])[pg_temp.pick(n, 4, 5)],
    60 * pg_temp.pick(n, 5, 50),
    pg_temp.moment(n, @ci_pipelines, @today) - interval '1 hour',
    pg_temp.moment(n, @ci_pipelines, @today) - interval '1 hour' + pg_temp.pick(n, 5, 50) * interval '1 minute'
FROM generate_series(@first::bigint, @last::bigint) AS n
LEFT JOIN merge_requests ON n % 2 = 0 AND merge_requests.id = pg_temp.pick(n, 6, @merge_requests);
