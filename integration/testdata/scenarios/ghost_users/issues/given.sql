INSERT INTO issues (id, project_id, title, author_id, updated_by_id, last_edited_by_id, closed_by_id) VALUES
    (1, 100, 'written', 1, 2, 2, 2),
    (2, 100, 'updated', 2, 1, 2, 2),
    (3, 100, 'edited', 2, 2, 1, 2),
    (4, 100, 'closed', 2, 2, 2, 1),
    (5, 100, 'of Ben alone', 2, 2, 2, 2);
