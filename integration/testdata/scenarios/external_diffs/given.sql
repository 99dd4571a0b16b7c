-- The diffs of merge request 7 are stored in the database.
INSERT INTO groups (id, name, path) VALUES (1, 'Group', 'group');
INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'Project', 'project'), (2, 1, 'Other', 'other');
INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (7, 1, 'title', 'branch', 'main');
INSERT INTO merge_request_metrics (merge_request_id) VALUES (7);
