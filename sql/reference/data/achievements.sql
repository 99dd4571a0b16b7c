INSERT INTO achievements (id, namespace_id, name, description, created_at)
SELECT
    n,
    1 + (n - 1) % @groups,
    (ARRAY['First contribution', 'Bug hunter', 'Reviewer of the month', 'Release captain'])[1 + (n - 1) / @groups],
    'For those who go the extra mile.',
    pg_temp.moment(n, @achievements, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
