INSERT INTO group_group_links (id, shared_group_id, shared_with_group_id, group_access, expires_at, created_at)
SELECT
    n,
    1 + (n - 1) % @groups,
    1 + n % @groups,
    (ARRAY[30, 40, 50])[pg_temp.pick(n, 1, 3)],
    CASE WHEN n % 5 = 0 THEN @today::timestamptz::date + pg_temp.pick(n, 2, 100)::integer - 20 END,
    pg_temp.moment(n, @group_group_links, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
