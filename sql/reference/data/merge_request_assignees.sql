INSERT INTO merge_request_assignees (id, merge_request_id, user_id, created_at)
SELECT n, merge_requests.id, coalesce(merge_requests.assignee_id, merge_requests.author_id), merge_requests.created_at
FROM generate_series(@first::bigint, @last::bigint) AS n
JOIN merge_requests ON merge_requests.id = 1 + (n - 1) * @merge_requests / @merge_request_assignees;
