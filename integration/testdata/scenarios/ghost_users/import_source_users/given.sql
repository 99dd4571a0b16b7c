INSERT INTO import_source_users (id, placeholder_user_id, reassign_to_user_id, reassigned_by_user_id,
    namespace_id, source_user_identifier, source_hostname, import_type) VALUES
    (1, 1, 2, 2, 1, '1', 'old.example.com', 'gitea'),
    (2, 2, 1, 2, 1, '2', 'old.example.com', 'gitea'),
    (3, 2, 2, 1, 1, '3', 'old.example.com', 'gitea'),
    (4, 2, 2, 2, 1, '4', 'old.example.com', 'gitea');
