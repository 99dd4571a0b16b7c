GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "sexton".retention_rules TO :"worker";
GRANT EXECUTE ON FUNCTION "sexton".backlog_of_retention() TO :"worker", :"viewer";

-- The worker also needs SELECT, UPDATE, DELETE on the table of each rule and on each table below it by ON DELETE CASCADE; on tables that refer to
-- one of these by SET NULL or SET DEFAULT SELECT, UPDATE, and by another key SELECT.

GRANT SELECT ON TABLE "sexton".retention_rules TO :"viewer";
