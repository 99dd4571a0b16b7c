-- Rows that the ghost user takes over, or that are deleted with the user, do not prevent
-- the deletion.
INSERT INTO merge_requests (id, target_project_id, title, author_id, last_edited_by_id, assignee_id, source_branch, target_branch)
VALUES (12, 1, 'by Ben', 2, 1, 1, 'a', 'b');
INSERT INTO events (project_id, author_id, action) VALUES (1, 1, 1);
INSERT INTO ci_pipelines (id, partition_id, project_id, user_id, ref, sha, status) VALUES (1, 100, 1, 1, 'main', 'x', 'success');
INSERT INTO p_ci_builds (partition_id, commit_id, project_id, user_id, name, stage, status) VALUES (100, 1, 1, 1, 'b', 's', 'success');
INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (1, 'Namespace', 1, 30);
INSERT INTO todos (user_id, author_id, target_type, target_id, action) VALUES (1, 1, 'Issue', 11, 1);
INSERT INTO subscriptions (user_id, subscribable_type, subscribable_id) VALUES (1, 'Issue', 11);
INSERT INTO import_source_users (id, placeholder_user_id, namespace_id, source_user_identifier, source_hostname, import_type)
VALUES (1, 1, 2, 'x', 'h', 'gitlab');
INSERT INTO import_source_user_placeholder_references (source_user_id, namespace_id, numeric_key, model, user_reference_column, alias_version)
VALUES (1, 2, 1, 'Note', 'author_id', 1);
