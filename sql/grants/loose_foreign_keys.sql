GRANT USAGE ON SCHEMA "public" TO :"worker";
GRANT EXECUTE ON FUNCTION "sexton".backlog_of_loose_foreign_keys() TO :"worker", :"viewer";
GRANT SELECT, INSERT, UPDATE, DELETE
    ON TABLE "public".loose_foreign_keys_deleted_records, "sexton".swept
    TO :"worker";

GRANT USAGE ON SCHEMA "public" TO :"viewer";
GRANT SELECT
    ON TABLE "public".loose_foreign_keys_deleted_records, "sexton".swept
    TO :"viewer";
