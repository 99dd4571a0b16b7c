-- Gives the planner the settings of the session again, whatever the function begin_batch has set.
SELECT pg_catalog.set_config(known.name, known.reset_val, true)
FROM pg_catalog.pg_settings AS known
WHERE known.name IN ('plan_cache_mode', 'enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin')
