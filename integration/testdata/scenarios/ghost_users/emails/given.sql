INSERT INTO emails (id, user_id, email) VALUES
    (1, 1, '1@example.org'),
    (2, 2, '2@example.org');
