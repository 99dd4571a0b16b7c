GRANT SELECT ON TABLE "sexton".migrations_jobs TO :"worker";
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "sexton".leases, "sexton".runs TO :"worker";

GRANT SELECT ON TABLE "sexton".migrations_jobs, "sexton".leases, "sexton".runs TO :"viewer";
