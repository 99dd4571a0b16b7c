INSERT INTO merge_request_diffs (
    id, merge_request_id, project_id, state, files_count, commits_count, stored_externally, sorted,
    base_commit_sha, head_commit_sha, start_commit_sha, real_size, patch_id_sha, created_at, updated_at
)
SELECT
    n,
    merge_requests.id,
    merge_requests.target_project_id,
    'collected',
    CASE WHEN n % 4 = 0 THEN 3 ELSE 1 END,
    1 + pg_temp.part(n),
    -- false and NULL both mean that the diff is in the database.
    CASE WHEN n % 2 = 0 THEN false END,
    true,
    pg_temp.sha(merge_requests.id, 1),
    pg_temp.sha(n, 2),
    pg_temp.sha(merge_requests.id, 1),
    CASE WHEN n % 4 = 0 THEN '3' ELSE '1' END,
    decode(pg_temp.sha(n, 3), 'hex'),
    merge_requests.created_at + pg_temp.part(n) * interval '6 hours',
    merge_requests.created_at + pg_temp.part(n) * interval '6 hours'
FROM generate_series(@first::bigint, @last::bigint) AS n
JOIN merge_requests ON merge_requests.id = pg_temp.whole(n);
