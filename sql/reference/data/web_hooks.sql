-- Every eighth hook belongs to a group.
INSERT INTO web_hooks (id, project_id, group_id, url, push_events, created_at)
SELECT
    n,
    CASE WHEN n % 8 > 0 THEN pg_temp.pick(n, 1, @projects) END,
    CASE WHEN n % 8 = 0 THEN pg_temp.pick(n, 2, @groups) END,
    (ARRAY['https://chat.example.com/hooks/', 'https://ci.example.com/notify/', 'https://tracker.example.com/in/'])[pg_temp.pick(n, 3, 3)] || pg_temp.sha(n, 4),
    n % 5 > 0,
    pg_temp.moment(n, @web_hooks, @today) - interval '365 days'
FROM generate_series(@first::bigint, @last::bigint) AS n;
