SELECT pg_catalog.to_regclass('"sexton".undo') IS NOT NULL
