INSERT INTO issue_assignees (issue_id, user_id) VALUES (100, 1), (100, 2);
