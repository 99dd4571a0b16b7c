INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch,
    author_id, assignee_id, updated_by_id, last_edited_by_id, merge_user_id) VALUES
    (1, 100, 'written', 'branch', 'main', 1, 2, 2, 2, 2),
    (2, 100, 'assigned', 'branch', 'main', 2, 1, 2, 2, 2),
    (3, 100, 'updated', 'branch', 'main', 2, 2, 1, 2, 2),
    (4, 100, 'edited', 'branch', 'main', 2, 2, 2, 1, 2),
    (5, 100, 'merged', 'branch', 'main', 2, 2, 2, 2, 1),
    (6, 100, 'of Ben alone', 'branch', 'main', 2, 2, 2, 2, 2);
