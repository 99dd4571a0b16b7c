INSERT INTO resource_state_events (id, issue_id, merge_request_id, user_id, state, created_at)
SELECT
    n,
    issues.id,
    merge_requests.id,
    coalesce(issues.closed_by_id, merge_requests.merge_user_id, pg_temp.person(n, 3, @people)),
    coalesce(issues.state_id, merge_requests.state_id),
    coalesce(issues.updated_at, merge_requests.updated_at)
FROM generate_series(@first::bigint, @last::bigint) AS n
LEFT JOIN issues ON n % 2 = 0 AND issues.id = pg_temp.pick(n, 1, @issues)
LEFT JOIN merge_requests ON n % 2 = 1 AND merge_requests.id = pg_temp.pick(n, 2, @merge_requests);
