SELECT CASE WHEN present.horizon OPERATOR(pg_catalog.=) 'infinity' THEN 0 WHEN present.horizon OPERATOR(pg_catalog.=) '-infinity' THEN 1e9
    ELSE greatest(extract(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) present.horizon), 0) END::pg_catalog.float8, present.blind
FROM ({horizon}) AS present
