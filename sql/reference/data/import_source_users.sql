-- A placeholder whose group was deleted has no row here. In every fifth row a person has
-- taken over the placeholder's work.
INSERT INTO import_source_users (
    id, placeholder_user_id, reassign_to_user_id, reassigned_by_user_id, namespace_id, status, source_user_identifier,
    source_hostname, import_type, source_username, source_name, reassignment_token, created_at, updated_at
)
SELECT
    n,
    CASE WHEN n % 5 > 0 THEN details.placeholder_user_id END,
    CASE WHEN n % 5 = 0 THEN pg_temp.pick(n, 1, @people) END,
    CASE WHEN n % 5 = 0 THEN pg_temp.pick(n, 2, @people) END,
    coalesce(details.namespace_id, 1),
    CASE WHEN n % 5 = 0 THEN 5 ELSE 0 END,
    (100000 + n)::text,
    'https://old.example.com',
    CASE WHEN n % 4 = 0 THEN 'github' ELSE 'gitlab_migration' END,
    coalesce(users.username, 'somebody' || n),
    coalesce(users.name, 'Somebody'),
    NULL,
    @today::timestamptz - interval '2000 hours',
    @today::timestamptz - interval '1000 hours'
FROM generate_series(@first::bigint, @last::bigint) AS n
LEFT JOIN import_placeholder_user_details AS details ON details.id = n + 1 + (n - 1) / 2
LEFT JOIN users ON users.id = details.placeholder_user_id;
