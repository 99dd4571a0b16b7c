GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "sexton".retention_rules TO :"worker";
GRANT EXECUTE ON FUNCTION "sexton".backlog_of_retention() TO :"worker", :"viewer";

-- The worker also needs, on the table of each rule and on each table below it by ON DELETE CASCADE, SET NULL or SET DEFAULT:
--     GRANT SELECT, UPDATE, DELETE ON TABLE child TO :"worker";

GRANT SELECT ON TABLE "sexton".retention_rules TO :"viewer";
