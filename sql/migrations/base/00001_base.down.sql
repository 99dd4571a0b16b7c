DROP VIEW IF EXISTS "sexton".backlog;
DROP TABLE IF EXISTS "sexton".run_counts, "sexton".application_tables, "sexton".events, "sexton".fences;
