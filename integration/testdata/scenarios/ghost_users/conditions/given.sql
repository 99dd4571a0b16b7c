-- Rows that meet all conditions of their list are moved to the ghost user. NULL meets no
-- condition.
INSERT INTO notes (id, author_id, noteable_type, noteable_id, note, system) VALUES
    (1, 1, 'Issue', 100, 'moved', false),
    (2, 1, 'Issue', 100, 'of the system', true),
    (3, 1, 'MergeRequest', 100, 'of a merge request', false),
    (4, 2, 'Issue', 100, 'of Ben', false);
