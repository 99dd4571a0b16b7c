SELECT pg_catalog.count(*) FROM "sexton".river_job;
