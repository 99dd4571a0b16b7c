-- The placeholder is queued for a soft deletion, with itself as initiator.
SELECT username, state, deletion_attempts, details.last_error, initiator_user_id, hard_delete
FROM users JOIN import_placeholder_user_details AS details ON placeholder_user_id = users.id LEFT JOIN users_ghost_user_migrations ON user_id = users.id;

-- any:
--   placeholder | blocked | 1 | NULL | 1 | f
