INSERT INTO merge_request_reviewers (id, merge_request_id, user_id, state, created_at)
SELECT
    n,
    1 + (n - 1) * @merge_requests / @merge_request_reviewers,
    pg_temp.person(n, 1, @people),
    n % 2,
    pg_temp.moment(n, @merge_request_reviewers, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
