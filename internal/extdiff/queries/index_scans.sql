-- Keeps the planner to the keys in a transaction that only reads: small parts of big tables are wanted. Memoize would keep
-- texts that are asked for once.
SELECT
    pg_catalog.set_config('enable_seqscan', 'off', true),
    pg_catalog.set_config('enable_hashjoin', 'off', true),
    pg_catalog.set_config('enable_mergejoin', 'off', true),
    pg_catalog.set_config('enable_memoize', 'off', true),
    pg_catalog.set_config('enable_material', 'off', true),
    pg_catalog.set_config('jit', 'off', true)
