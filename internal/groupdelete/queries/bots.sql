-- Queues the project bots (user type 6) among the deleted members for deletion, on behalf
-- of the user who requested the destruction $3. A bot belongs to one group or project.
bot AS MATERIALIZED (
	SELECT deleted.user_id FROM deleted JOIN {users} AS users ON users.id OPERATOR(pg_catalog.=) deleted.user_id AND users.user_type OPERATOR(pg_catalog.=) 6
),
stopped AS (
	UPDATE {users} AS users SET state = 'blocked' FROM bot
	WHERE users.id OPERATOR(pg_catalog.=) bot.user_id AND (users.state OPERATOR(pg_catalog.=) 'blocked') IS NOT TRUE
),
queued AS (
	INSERT INTO "public".users_ghost_user_migrations (user_id, initiator_user_id, hard_delete, consume_after, created_at, updated_at)
	SELECT DISTINCT bot.user_id, (SELECT begun.user_id FROM "sexton".group_destructions AS begun WHERE begun.group_id OPERATOR(pg_catalog.=) $3),
		false, pg_catalog.now(), pg_catalog.now(), pg_catalog.now()
	FROM bot
	ON CONFLICT DO NOTHING
)
