-- All scenarios start with these rows. Ada (1) is deleted, Ben (2) is kept. who() returns
-- their names in the results.

INSERT INTO users (username, email, name) VALUES ('ada', 'ada@example.com', 'Ada'), ('ben', 'ben@example.com', 'Ben');
INSERT INTO organizations (id, name, path) VALUES (1, 'Organization', 'organization');
INSERT INTO groups (id, name, path) VALUES (1, 'Group', 'group');
INSERT INTO projects (id, group_id, creator_id, name, path) VALUES (100, 1, 2, 'Project', 'project');
INSERT INTO labels (id, project_id, title, color) VALUES (1, 100, 'bug', 'red');
INSERT INTO achievements (id, namespace_id, name) VALUES (1, 1, 'First steps');
INSERT INTO issues (id, project_id, author_id, title) VALUES (100, 100, 2, 'Ben''s issue');
INSERT INTO merge_requests (id, target_project_id, author_id, title, source_branch, target_branch)
VALUES (100, 100, 2, 'Ben''s merge request', 'fix', 'main');

CREATE OR REPLACE FUNCTION who(user_id bigint) RETURNS text LANGUAGE sql AS $$
    SELECT CASE
        WHEN user_id IS NOT NULL THEN coalesce((SELECT username FROM users WHERE users.id = user_id), 'nobody, once ' || user_id)
    END
$$;
