-- application: queues and cancels the deletion of users. The functions run with the
-- privileges of the role jobs.owner, to which "sexton migrate up" grants access to users,
-- members and groups.
GRANT USAGE ON SCHEMA "sexton", "public" TO :"application";
GRANT EXECUTE ON FUNCTION "sexton".delete_user("{type}", "{type}", boolean, boolean) TO :"application", :"worker";
GRANT EXECUTE ON FUNCTION "sexton".cancel_user_deletion("{type}", "{type}") TO :"application", :"worker";

GRANT USAGE ON SCHEMA "public" TO :"worker";
GRANT EXECUTE ON FUNCTION "sexton".ghost_user() TO :"worker";
-- The worker also queues the project bots of groups that it destroys.
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "public".users_ghost_user_migrations TO :"worker";
GRANT EXECUTE ON FUNCTION "sexton".backlog_of_ghost_users() TO :"worker", :"viewer";
-- Locking a row requires UPDATE on at least one column.
GRANT SELECT, UPDATE ("{lock}"), DELETE ON TABLE "public"."{users}" TO :"worker";

GRANT USAGE ON SCHEMA "public" TO :"viewer";
GRANT SELECT ON TABLE "public".users_ghost_user_migrations TO :"viewer";
