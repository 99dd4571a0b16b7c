-- The query finds Ada, her entry in the queue, and a missing, duplicate or wrong event.
SELECT 'user' FROM users WHERE username = 'ada'
UNION ALL SELECT 'in the queue' FROM users_ghost_user_migrations
UNION ALL SELECT 'announced ' || count(*) || ' times' FROM sexton.events WHERE kind = 'user_destroyed'
HAVING count(*) <> 1 OR min(payload ->> 'user_id') <> '1' OR min(payload ->> 'initiator_user_id') <> '2';
