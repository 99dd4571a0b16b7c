INSERT INTO projects (id, group_id, name, path) VALUES (1, 10, 'P', 'p'), (2, 11, 'P', 'p'), (3, 12, 'P', 'p');
INSERT INTO issues (id, project_id, title) SELECT id, id, 'issue' FROM projects;
SELECT sexton.schedule_group_deletion(11, 2);
