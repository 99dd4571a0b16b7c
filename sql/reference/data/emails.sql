INSERT INTO emails (id, user_id, email, confirmed_at, created_at)
SELECT
    n,
    pg_temp.pick(n, 1, @people),
    'private' || n || '@example.org',
    CASE WHEN n % 7 > 0 THEN pg_temp.moment(n, @emails, @today) END,
    pg_temp.moment(n, @emails, @today) - interval '10 minutes'
FROM generate_series(@first::bigint, @last::bigint) AS n;
