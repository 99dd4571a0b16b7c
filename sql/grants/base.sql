GRANT USAGE ON SCHEMA "sexton" TO :"worker";
GRANT SELECT ON TABLE "sexton".application_tables TO :"worker";
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "sexton".fences, "sexton".events TO :"worker";
GRANT EXECUTE
    ON FUNCTION "sexton".begin_batch(text, integer, bigint, integer, integer, boolean), "sexton".raise_fence(text, bigint, text),
        "sexton".require(boolean),
        "sexton".session_name(text), "sexton".application_path(text), "sexton".commit_mode(boolean), "sexton".backlog_rows()
    TO :"worker";
GRANT SELECT ON TABLE "sexton".backlog TO :"worker";

-- application: reads the outbox.
GRANT USAGE ON SCHEMA "sexton" TO :"application";
GRANT SELECT ON TABLE "sexton".events TO :"application";

-- viewer: reads state and history.
GRANT USAGE ON SCHEMA "sexton" TO :"viewer";
GRANT SELECT ON TABLE "sexton".application_tables, "sexton".fences, "sexton".events, "sexton".backlog TO :"viewer";
GRANT EXECUTE ON FUNCTION "sexton".backlog_rows() TO :"viewer";
