-- Bounds the transaction. Policies would hide rows, and what cannot be seen would count as gone: off means an error instead.
-- Triggers find names by their own path.
SELECT
    pg_catalog.set_config('statement_timeout', $1::bigint::pg_catalog.text, true),
    pg_catalog.set_config('lock_timeout', $2::bigint::pg_catalog.text, true),
    pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true),
    pg_catalog.set_config('row_security', 'off', true),
    pg_catalog.set_config('search_path', "sexton".application_path($3), true),
    -- It is found by this name while it waits for another session.
    pg_catalog.set_config('application_name', pg_catalog.concat("sexton".session_name($4), '#0'), true)
