-- Snippets of a project are moved to the ghost user, personal snippets are deleted with
-- their author.
INSERT INTO snippets (id, project_id, author_id, type, title) VALUES
    (1, 100, 1, 'ProjectSnippet', 'of the project'),
    (2, NULL, 1, 'PersonalSnippet', 'personal'),
    (3, NULL, 2, 'PersonalSnippet', 'of Ben');
