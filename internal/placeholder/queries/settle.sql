-- Sets the limits of the transaction. With row_security off, a policy that would hide
-- rows is an error, because hidden rows would count as deleted. Triggers need the
-- application's search_path.
SELECT
    pg_catalog.set_config('statement_timeout', $1::bigint::pg_catalog.text, true),
    pg_catalog.set_config('lock_timeout', $2::bigint::pg_catalog.text, true),
    pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true),
    pg_catalog.set_config('row_security', 'off', true),
    pg_catalog.set_config('search_path', "sexton".application_path($3), true),
    -- pg_stat_activity shows the session with this name while it waits for another
    -- session.
    pg_catalog.set_config('application_name', pg_catalog.concat("sexton".session_name($4), '#0'), true)
