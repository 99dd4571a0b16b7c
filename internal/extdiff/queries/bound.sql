-- Sets the limits of a transaction in ms: $1 for each statement and for idle time, and $2 for each wait for a lock. Triggers use the application's
-- search path ($3).
SELECT
    pg_catalog.set_config('statement_timeout', $1::bigint::pg_catalog.text, true),
    pg_catalog.set_config('lock_timeout', $2::bigint::pg_catalog.text, true),
    pg_catalog.set_config('idle_in_transaction_session_timeout', $1::bigint::pg_catalog.text, true),
    pg_catalog.set_config('row_security', 'off', true),
    pg_catalog.set_config('search_path', "sexton".application_path($3), true)
