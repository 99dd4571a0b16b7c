INSERT INTO members (id, user_id, created_by_id, source_type, source_id, access_level) VALUES
    (1, 1, 2, 'Project', 100, 30),
    (2, 2, 1, 'Project', 100, 30),
    (3, 2, 2, 'Namespace', 1, 50);
