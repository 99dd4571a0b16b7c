GRANT USAGE ON SCHEMA "public" TO :"worker";
GRANT SELECT, INSERT, UPDATE, DELETE
    ON TABLE "sexton".external_diffs, "sexton".external_diff_removals, "sexton".external_diff_cursors
    TO :"worker";
GRANT SELECT ON TABLE "sexton".external_diff_installation TO :"worker";
GRANT SELECT, INSERT ON TABLE "sexton".external_diff_stores TO :"worker";
GRANT EXECUTE
    ON FUNCTION "sexton".external_diff_encoded(text), "sexton".external_diff_body(text), "sexton".external_diff_layout(bigint)
    TO :"worker";
GRANT EXECUTE
    ON FUNCTION "sexton".backlog_of_external_diffs(), "sexton".backlog_of_external_diff_removals(), "sexton".external_diff_bytes(integer)
    TO :"worker", :"viewer";
GRANT EXECUTE ON FUNCTION "sexton".external_diff_place() TO :"worker";
GRANT SELECT, UPDATE ON TABLE "public".merge_request_diffs, "public".merge_request_diff_files TO :"worker";
GRANT SELECT ON TABLE "public".merge_requests, "public".merge_request_metrics TO :"worker";

-- application: reads diffs from object storage by itself.
GRANT USAGE ON SCHEMA "sexton" TO :"application";
GRANT EXECUTE ON FUNCTION "sexton".external_diff_layout(bigint) TO :"application";

GRANT USAGE ON SCHEMA "public" TO :"viewer";
GRANT SELECT
    ON TABLE "sexton".external_diffs, "sexton".external_diff_removals, "sexton".external_diff_cursors
    TO :"viewer";
GRANT SELECT ON TABLE "public".merge_request_diffs TO :"viewer";
