-- Placeholder 1 was created by an import into a group that has been deleted. Ben (2) has
-- written all other rows.
INSERT INTO organizations (id, name, path) VALUES (1, 'Organization', 'organization');
INSERT INTO users (id, username, email, name, user_type) VALUES (1, 'placeholder', 'p@noreply.example.com', 'Placeholder', 15), (2, 'ben', 'ben@example.com', 'Ben', 0);
INSERT INTO groups (id, name, path) VALUES (1, 'One', 'one'), (2, 'Two', 'two');
INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'Project', 'project');
INSERT INTO issues (id, project_id, title, author_id) VALUES (11, 1, 'by Ben', 2);
INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id, last_error) VALUES (1, 1, 1, 'of old');
