UPDATE issues SET author_id = 1;
INSERT INTO notes (id, project_id, noteable_type, noteable_id, author_id, note) VALUES (17, 1, 'Issue', 11, 1, 'n');
