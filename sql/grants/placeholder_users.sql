GRANT USAGE ON SCHEMA "public" TO :"worker";
-- A row goes with its user, which the job of the ghost users deletes.
GRANT SELECT, UPDATE, DELETE ON TABLE "public".import_placeholder_user_details TO :"worker";

-- It says which rules it has, for the backlog.
GRANT SELECT, INSERT, UPDATE ON TABLE "sexton".placeholder_rules TO :"worker";
GRANT EXECUTE
    ON FUNCTION "sexton".backlog_of_placeholder_users(), "sexton".placeholder_backlog(integer, double precision)
    TO :"worker", :"viewer";

GRANT USAGE ON SCHEMA "public" TO :"viewer";
GRANT SELECT
    ON TABLE "sexton".placeholder_rules, "public".import_placeholder_user_details
    TO :"viewer";
GRANT SELECT (id, user_type) ON TABLE "public".users TO :"viewer";
