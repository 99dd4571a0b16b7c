GRANT SELECT ON TABLE "sexton".undo_layouts TO :"worker";
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "sexton".undo TO :"worker";
GRANT SELECT, UPDATE ON TABLE "sexton".undo_state TO :"worker";
GRANT USAGE ON SEQUENCE "sexton".undo_ids TO :"worker";
GRANT EXECUTE ON FUNCTION
    "sexton".undo_text(anyarray), "sexton".undo_value(text, anyelement), "sexton".undo_layout(oid, text[]), "sexton".undo_rotate(text, interval, boolean),
    "sexton".undo_set(oid, bigint, text[], bigint, boolean, oid)
    TO :"worker";
-- Only the worker reads kept rows. The viewer reads their age.
GRANT SELECT (kept_at, origins) ON TABLE "sexton".undo TO :"viewer";
