INSERT INTO events (id, author_id, project_id, action) VALUES
    (1, 1, 100, 5),
    (2, 2, 100, 5);
