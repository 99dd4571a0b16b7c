INSERT INTO uploads (id, project_id, uploader, path, size, checksum, created_at)
SELECT
    n,
    pg_temp.project(n, 1, @projects),
    'FileUploader',
    pg_temp.sha(n, 2) || (ARRAY['/screenshot.png', '/trace.log', '/design.pdf'])[pg_temp.pick(n, 3, 3)],
    pg_temp.skewed(n, 4, 8000000, 3),
    encode(sha256(pg_temp.sha(n, 5)::bytea), 'hex'),
    pg_temp.moment(n, @uploads, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
