-- The query finds attempts with neither an error nor a queued user.
SELECT 'details ' || id FROM import_placeholder_user_details
WHERE deletion_attempts > 0 AND last_error IS NULL AND placeholder_user_id NOT IN (SELECT user_id FROM users_ghost_user_migrations);
