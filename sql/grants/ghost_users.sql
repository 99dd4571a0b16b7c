-- application: asks for a user's deletion, and takes that back. The functions run with the rights of the role jobs.owner, which
-- "sexton migrate up" grants what it needs on users, members and groups.
GRANT USAGE ON SCHEMA "sexton", "public" TO :"application";
GRANT EXECUTE ON FUNCTION "sexton".delete_user("{type}", "{type}", boolean, boolean) TO :"application", :"worker";
GRANT EXECUTE ON FUNCTION "sexton".cancel_user_deletion("{type}", "{type}") TO :"application", :"worker";

GRANT USAGE ON SCHEMA "public" TO :"worker";
GRANT EXECUTE ON FUNCTION "sexton".ghost_user() TO :"worker";
-- Project bots of groups that are destroyed enter the queue by the worker's hand.
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "public".users_ghost_user_migrations TO :"worker";
GRANT EXECUTE ON FUNCTION "sexton".backlog_of_ghost_users() TO :"worker", :"viewer";
-- Who may update no column may not lock a row.
GRANT SELECT, UPDATE ("{lock}"), DELETE ON TABLE "public"."{users}" TO :"worker";

GRANT USAGE ON SCHEMA "public" TO :"viewer";
GRANT SELECT ON TABLE "public".users_ghost_user_migrations TO :"viewer";
