GRANT USAGE ON SCHEMA "public" TO :"worker";
GRANT EXECUTE ON FUNCTION "sexton".backlog_of_loose_foreign_keys() TO :"worker", :"viewer";
GRANT SELECT, INSERT, UPDATE, DELETE
    ON TABLE "public".loose_foreign_keys_deleted_records, "sexton".swept
    TO :"worker";

-- The worker also needs, on each child table of the definitions:
--     GRANT SELECT, UPDATE, DELETE ON TABLE child TO :"worker";
-- and on the key columns of each parent, without which the parent's tombstones are held: a row that cannot be seen is not gone:
--     GRANT SELECT (id) ON TABLE parent TO :"worker";
-- A superuser may let it see how old other roles' transactions are. Without, it waits a fixed time for them:
--     GRANT pg_read_all_stats TO :"worker";
-- To put triggers on new partitions by itself it must be a member of the role that owns them, and:
--     GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "sexton" TO :"worker";

GRANT USAGE ON SCHEMA "public" TO :"viewer";
GRANT SELECT
    ON TABLE "public".loose_foreign_keys_deleted_records, "sexton".swept
    TO :"viewer";
