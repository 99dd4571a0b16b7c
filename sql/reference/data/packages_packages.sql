INSERT INTO packages_packages (id, project_id, creator_id, name, version, package_type, created_at)
SELECT
    n,
    pg_temp.project(n, 1, @projects),
    pg_temp.person(n, 2, @people),
    (ARRAY['@example/ui', 'com/example/core', 'installer', '@example/lint'])[pg_temp.pick(n, 3, 4)],
    '1.' || n || '.0',
    (ARRAY[2, 1, 7, 2])[pg_temp.pick(n, 3, 4)],
    pg_temp.moment(n, @packages_packages, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
