INSERT INTO reviews (id, author_id, merge_request_id, project_id) VALUES
    (1, 1, 100, 100),
    (2, 2, 100, 100);
