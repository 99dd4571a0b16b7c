-- application: enqueues jobs by SQL and reads their status.
GRANT USAGE ON SCHEMA "sexton" TO :"application";
GRANT EXECUTE ON FUNCTION "sexton".enqueue(text, jsonb, timestamptz), "sexton".job_status(bigint) TO :"application", :"worker";

GRANT EXECUTE
    ON FUNCTION "sexton".enqueue_new(text, jsonb, timestamptz), "sexton".job_waits(text, text)
    TO :"worker";

GRANT SELECT ON TABLE "sexton".job_kinds, "sexton".generations TO :"worker";
GRANT SELECT, INSERT, UPDATE, DELETE
    ON TABLE "sexton".leases, "sexton".runs, "sexton".clients, "sexton".schedules
    TO :"worker";
-- The worker does not change audit rows. It only deletes expired rows.
GRANT SELECT, INSERT, DELETE ON TABLE "sexton".samples, "sexton".audit TO :"worker";

GRANT SELECT
    ON TABLE "sexton".leases, "sexton".runs, "sexton".clients, "sexton".schedules, "sexton".job_kinds, "sexton".generations,
    "sexton".samples, "sexton".audit
    TO :"viewer";
GRANT EXECUTE ON FUNCTION "sexton".job_waits(text, text) TO :"viewer";
GRANT EXECUTE ON FUNCTION "sexton".job_status(bigint) TO :"viewer";
