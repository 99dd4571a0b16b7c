INSERT INTO releases (id, author_id, project_id, tag, released_at) VALUES
    (1, 1, 100, 'v1', now()),
    (2, 2, 100, 'v2', now());
