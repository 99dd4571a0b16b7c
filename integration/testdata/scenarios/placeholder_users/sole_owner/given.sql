-- sexton.delete_user has the last word.
INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (1, 'Namespace', 1, 50);
