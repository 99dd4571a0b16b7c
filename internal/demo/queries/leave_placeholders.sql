UPDATE "public".import_placeholder_user_details AS detail SET namespace_id = NULL
WHERE detail.id IN (
    SELECT owned.id FROM "public".import_placeholder_user_details AS owned
    WHERE owned.namespace_id IS NOT NULL ORDER BY owned.id LIMIT $1 FOR UPDATE SKIP LOCKED
)
RETURNING detail.placeholder_user_id
