INSERT INTO projects (id, group_id, creator_id, name, path) VALUES
    (1, 1, 1, 'of Ada', 'ada'),
    (2, 1, 2, 'of Ben', 'ben');
