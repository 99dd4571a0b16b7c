INSERT INTO resource_label_events (id, issue_id, merge_request_id, label_id, user_id, action, created_at)
SELECT
    n,
    issues.id,
    merge_requests.id,
    (SELECT min(labels.id) FROM labels WHERE labels.project_id = coalesce(issues.project_id, merge_requests.target_project_id)),
    pg_temp.person(n, 3, @people),
    CASE WHEN n % 5 = 0 THEN 2 ELSE 1 END,
    pg_temp.moment(n, @resource_label_events, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n
LEFT JOIN issues ON n % 2 = 0 AND issues.id = pg_temp.pick(n, 1, @issues)
LEFT JOIN merge_requests ON n % 2 = 1 AND merge_requests.id = pg_temp.pick(n, 2, @merge_requests);
