SELECT present.horizon, present.blind, pg_catalog.clock_timestamp(),
       pg_catalog.set_config('sexton.horizon', extract(epoch FROM present.horizon)::pg_catalog.text, true)
FROM ({horizon}) AS present
WHERE EXISTS (SELECT FROM "sexton".swept AS swept WHERE swept.database OPERATOR(pg_catalog.=) $2)
