SELECT 'placeholders', detail.placeholder_user_id, coalesce(detail.last_deletion_attempt_at, now())
FROM "public".import_placeholder_user_details AS detail
WHERE detail.namespace_id IS NULL AND detail.deletion_attempts < 15 AND detail.last_error IS NULL
AND NOT EXISTS (SELECT FROM "public".users_ghost_user_migrations AS job WHERE job.user_id = detail.placeholder_user_id)
