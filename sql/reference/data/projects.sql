-- Groups 4, 8, 12, ... have no projects.
INSERT INTO projects (
    id, group_id, creator_id, name, path, description, visibility_level, archived, star_count, last_activity_at, created_at, updated_at
)
SELECT
    n,
    CASE WHEN chosen % 4 = 0 THEN chosen - 1 ELSE chosen END,
    pg_temp.person(n, 2, @people),
    name,
    name || '-' || n,
    'The ' || name || ' that we use every day.',
    CASE WHEN n % 3 = 0 THEN 20 ELSE 0 END,
    n % 29 = 0,
    pg_temp.skewed(n, 3, 2000, 8) - 1,
    @today::timestamptz - pg_temp.skewed(n, 4, 500000, 3) * interval '1 minute',
    pg_temp.moment(n, @projects, @today) - interval '365 days',
    pg_temp.moment(n, @projects, @today)
FROM (
    SELECT
        n,
        pg_temp.pick(n, 1, @groups) AS chosen,
        (ARRAY['api', 'web', 'handbook', 'terraform', 'android', 'ios', 'charts', 'website', 'runner', 'sdk', 'design-system', 'etl', 'gateway', 'cli', 'dotfiles', 'playground'])
            [pg_temp.pick(n, 5, 16)] AS name
    FROM generate_series(@first::bigint, @last::bigint) AS n
) AS new;
