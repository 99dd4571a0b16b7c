-- sexton.delete_user refuses the deletion of a sole owner.
INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (1, 'Namespace', 1, 50);
