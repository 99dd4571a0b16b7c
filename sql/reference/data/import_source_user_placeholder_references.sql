INSERT INTO import_source_user_placeholder_references (
    id, source_user_id, namespace_id, numeric_key, model, user_reference_column, alias_version, created_at
)
SELECT n, import_source_users.id, import_source_users.namespace_id, pg_temp.pick(n, 1, @notes), 'Note', 'author_id', 1, import_source_users.created_at
FROM generate_series(@first::bigint, @last::bigint) AS n
JOIN import_source_users ON import_source_users.id = 1 + (n - 1) % @import_source_users;
