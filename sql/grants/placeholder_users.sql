GRANT USAGE ON SCHEMA "public" TO :"worker";
GRANT SELECT ON TABLE "sexton".migrations_placeholder_users TO :"worker";
-- A row goes with its user, which the job of the ghost users deletes.
GRANT SELECT, UPDATE, DELETE ON TABLE "public".import_placeholder_user_details TO :"worker";

-- The worker also needs, on each table of placeholder_users.references:
--     GRANT SELECT ON TABLE child TO :"worker";

GRANT USAGE ON SCHEMA "public" TO :"viewer";
GRANT SELECT ON TABLE "sexton".migrations_placeholder_users, "public".import_placeholder_user_details TO :"viewer";
GRANT SELECT (id, user_type) ON TABLE "public".users TO :"viewer";
