INSERT INTO approvals (id, merge_request_id, user_id, created_at)
SELECT
    n,
    1 + (n - 1) * @merge_requests / @approvals,
    pg_temp.person(n, 1, @people),
    pg_temp.moment(n, @approvals, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
