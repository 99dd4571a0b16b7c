GRANT USAGE ON SCHEMA "public" TO :"worker";
-- The worker needs DELETE, because the job that deletes a user also deletes the user's
-- row in this table.
GRANT SELECT, UPDATE, DELETE ON TABLE "public".import_placeholder_user_details TO :"worker";

-- The worker stores its rules, which the function of the backlog reads.
GRANT SELECT, INSERT, UPDATE ON TABLE "sexton".placeholder_rules TO :"worker";
GRANT EXECUTE
    ON FUNCTION "sexton".backlog_of_placeholder_users(), "sexton".placeholder_backlog(integer, double precision)
    TO :"worker", :"viewer";

GRANT USAGE ON SCHEMA "public" TO :"viewer";
GRANT SELECT
    ON TABLE "sexton".placeholder_rules, "public".import_placeholder_user_details
    TO :"viewer";
GRANT SELECT (id, user_type) ON TABLE "public".users TO :"viewer";
