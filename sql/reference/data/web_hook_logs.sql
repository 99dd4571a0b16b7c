INSERT INTO web_hook_logs (id, web_hook_id, trigger, response_status, execution_duration, request_data, created_at)
SELECT
    n,
    pg_temp.skewed(n, 1, @web_hooks, 2),
    (ARRAY['push_hooks', 'issue_hooks', 'merge_request_hooks', 'pipeline_hooks'])[pg_temp.pick(n, 2, 4)],
    CASE WHEN n % 40 = 0 THEN 'internal error' WHEN n % 25 = 0 THEN '503' ELSE '200' END,
    pg_temp.skewed(n, 3, 5000, 3) / 1000.0,
    '{"object_kind":"push","ref":"refs/heads/main","checkout_sha":"' || pg_temp.sha(n, 4) || '","total_commits_count":' || pg_temp.pick(n, 5, 9) || '}',
    pg_temp.moment(n, @web_hook_logs, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
