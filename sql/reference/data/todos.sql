INSERT INTO todos (id, user_id, author_id, project_id, target_type, target_id, action, state, created_at)
SELECT
    n,
    pg_temp.person(n, 3, @people),
    pg_temp.person(n, 4, @people),
    coalesce(issues.project_id, merge_requests.target_project_id),
    CASE WHEN n % 2 = 0 THEN 'Issue' ELSE 'MergeRequest' END,
    coalesce(issues.id, merge_requests.id),
    (ARRAY[1, 2, 3, 5, 7, 9])[pg_temp.pick(n, 5, 6)],
    CASE WHEN n % 5 = 0 THEN 'pending' ELSE 'done' END,
    pg_temp.moment(n, @todos, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n
LEFT JOIN issues ON n % 2 = 0 AND issues.id = pg_temp.skewed(n, 1, @issues, 1.5)
LEFT JOIN merge_requests ON n % 2 = 1 AND merge_requests.id = pg_temp.skewed(n, 2, @merge_requests, 1.5);
