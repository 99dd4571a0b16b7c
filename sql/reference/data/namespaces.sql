INSERT INTO namespaces (id, owner_id, name, path, created_at)
SELECT users.id, users.id, users.name, users.username, users.created_at
FROM users
WHERE users.id BETWEEN @first::bigint AND @last::bigint;
