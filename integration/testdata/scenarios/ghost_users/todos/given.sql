-- Ada is both user and author of the last todo.
INSERT INTO todos (id, user_id, author_id, target_type, target_id, action) VALUES
    (1, 1, 2, 'Issue', 100, 1),
    (2, 2, 1, 'Issue', 100, 1),
    (3, 2, 2, 'Issue', 100, 1),
    (4, 1, 1, 'Issue', 100, 1);
