-- Returns the functions in the schema sexton with their bodies.
SELECT proname::pg_catalog.text, prosrc FROM pg_catalog.pg_proc WHERE pronamespace = pg_catalog.to_regnamespace('sexton');
