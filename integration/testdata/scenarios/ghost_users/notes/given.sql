INSERT INTO notes (id, author_id, noteable_type, noteable_id, note) VALUES
    (1, 1, 'Issue', 100, 'me too'),
    (2, 2, 'Issue', 100, 'me too');
