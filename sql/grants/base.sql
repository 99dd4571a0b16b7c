-- worker: the role of "sexton run".
GRANT USAGE ON SCHEMA "sexton" TO :"worker";
GRANT SELECT ON TABLE "sexton".objects, "sexton".migrations_base TO :"worker";
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "sexton".fences, "sexton".events TO :"worker";
GRANT EXECUTE
    ON FUNCTION "sexton".begin_batch(text, bigint, integer, integer, boolean), "sexton".session_name(text)
    TO :"worker";

-- viewer: reads state and history.
GRANT USAGE ON SCHEMA "sexton" TO :"viewer";
GRANT SELECT ON TABLE "sexton".objects, "sexton".migrations_base, "sexton".fences, "sexton".events TO :"viewer";
