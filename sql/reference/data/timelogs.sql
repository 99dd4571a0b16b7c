INSERT INTO timelogs (id, project_id, issue_id, merge_request_id, user_id, time_spent, summary, spent_at)
SELECT
    n,
    coalesce(issues.project_id, merge_requests.target_project_id),
    issues.id,
    merge_requests.id,
    pg_temp.person(n, 3, @people),
    pg_temp.pick(n, 4, 16) * 900,
    CASE WHEN n % 3 = 0 THEN pg_temp.title(n, 5) END,
    pg_temp.moment(n, @timelogs, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n
LEFT JOIN issues ON n % 2 = 0 AND issues.id = pg_temp.pick(n, 1, @issues)
LEFT JOIN merge_requests ON n % 2 = 1 AND merge_requests.id = pg_temp.pick(n, 2, @merge_requests);
