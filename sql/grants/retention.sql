GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "sexton".retention_rules TO :"worker";
GRANT EXECUTE ON FUNCTION "sexton".backlog_of_retention() TO :"worker", :"viewer";

-- The worker also needs SELECT, UPDATE and DELETE on the table of each rule and on each
-- table below it by ON DELETE CASCADE. It needs SELECT and UPDATE on tables that refer to
-- one of these tables by ON DELETE SET NULL or SET DEFAULT, and SELECT on tables that
-- refer to one of them by another foreign key.

GRANT SELECT ON TABLE "sexton".retention_rules TO :"viewer";
