GRANT SELECT ON TABLE "sexton".river_migration TO :"worker";
GRANT SELECT, INSERT, UPDATE, DELETE
    ON TABLE "sexton".river_job, "sexton".river_leader, "sexton".river_queue, "sexton".river_notification
    TO :"worker";
GRANT USAGE ON SEQUENCE "sexton".river_job_id_seq, "sexton".river_notification_id_seq TO :"worker";

GRANT SELECT
    ON TABLE "sexton".river_migration, "sexton".river_job, "sexton".river_leader, "sexton".river_queue
    TO :"viewer";
