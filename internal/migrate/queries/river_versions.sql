-- Records all versions of River's tables up to $1 as installed.
INSERT INTO "sexton".river_migration (line, version) SELECT 'main', v FROM pg_catalog.generate_series(1, $1::pg_catalog.int8) AS v;
