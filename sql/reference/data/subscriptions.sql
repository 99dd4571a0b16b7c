INSERT INTO subscriptions (id, user_id, subscribable_type, subscribable_id, subscribed, created_at)
SELECT
    n,
    pg_temp.person(n, 1, @people),
    CASE WHEN n % 2 = 1 THEN 'Issue' ELSE 'MergeRequest' END,
    (n + 1) / 2 * CASE WHEN n % 2 = 1 THEN @issues::bigint ELSE @merge_requests::bigint END / ((@subscriptions + 1) / 2),
    n % 9 > 0,
    pg_temp.moment(n, @subscriptions, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
