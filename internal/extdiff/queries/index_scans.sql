-- Makes the planner use the keys in a transaction that only reads, because it reads small parts of large tables. Memoize would cache texts that are
-- needed only once.
SELECT
    pg_catalog.set_config('enable_seqscan', 'off', true),
    pg_catalog.set_config('enable_hashjoin', 'off', true),
    pg_catalog.set_config('enable_mergejoin', 'off', true),
    pg_catalog.set_config('enable_memoize', 'off', true),
    pg_catalog.set_config('enable_material', 'off', true),
    pg_catalog.set_config('jit', 'off', true)
