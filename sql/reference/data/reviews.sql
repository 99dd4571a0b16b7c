INSERT INTO reviews (id, author_id, merge_request_id, project_id, created_at)
SELECT
    n,
    pg_temp.person(n, 1, @people),
    merge_requests.id,
    merge_requests.target_project_id,
    merge_requests.created_at + interval '4 hours'
FROM generate_series(@first::bigint, @last::bigint) AS n
JOIN merge_requests ON merge_requests.id = pg_temp.pick(n, 2, @merge_requests);
