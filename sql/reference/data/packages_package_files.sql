INSERT INTO packages_package_files (id, package_id, status, file_name, file_sha256, size, created_at)
SELECT
    n,
    pg_temp.pick(n, 1, @packages_packages),
    0,
    (ARRAY['package.tgz', 'core.jar', 'pom.xml', 'setup.bin'])[pg_temp.pick(n, 2, 4)],
    sha256(pg_temp.sha(n, 3)::bytea),
    pg_temp.skewed(n, 4, 20000000, 3),
    pg_temp.moment(n, @packages_package_files, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
