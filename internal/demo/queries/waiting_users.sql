SELECT 'users', user_id, created_at FROM "public".users_ghost_user_migrations
