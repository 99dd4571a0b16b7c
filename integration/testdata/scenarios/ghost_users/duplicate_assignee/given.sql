-- The ghost user is already assigned to one of Ada's two issues.
INSERT INTO users (username, email, name, user_type) VALUES ('ghost', 'ghost@example.com', 'Ghost User', 5);
INSERT INTO issues (id, project_id, author_id, title) VALUES (101, 100, 2, 'Ben''s other issue');
INSERT INTO issue_assignees (issue_id, user_id)
SELECT issue, users.id
FROM (VALUES (100, 'ghost'), (100, 'ada'), (100, 'ben'), (101, 'ada')) AS given (issue, name)
JOIN users ON users.username = given.name;
