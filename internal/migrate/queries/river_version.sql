-- Returns the version of River's tables. Before version 5 river_migration has no column
-- line.
SELECT coalesce(pg_catalog.max(version), 0) FROM "sexton".river_migration AS m WHERE coalesce(pg_catalog.to_jsonb(m) ->> 'line'::pg_catalog.text, 'main') = 'main';
