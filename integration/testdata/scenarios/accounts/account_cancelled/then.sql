SELECT state, (SELECT count(*) FROM documents WHERE author_id = accounts.id), (SELECT string_agg(kind, ' ') FROM sexton.events) FROM accounts WHERE id = key_of(1);

-- any:
--   active | 2 | user_deletion_cancelled
