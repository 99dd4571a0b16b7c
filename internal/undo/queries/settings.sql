-- What values are read by, as the function undo_text wrote them, and for how long. With $1 neither triggers nor foreign keys fire.
SELECT pg_catalog.set_config('statement_timeout', $2::pg_catalog.int8::pg_catalog.text, true),
    pg_catalog.set_config('DateStyle', 'ISO, YMD', true), pg_catalog.set_config('IntervalStyle', 'postgres', true),
    pg_catalog.set_config('TimeZone', 'UTC', true), pg_catalog.set_config('extra_float_digits', '1', true),
    pg_catalog.set_config('lc_monetary', 'C', true), pg_catalog.set_config('xmloption', 'content', true),
    pg_catalog.set_config('bytea_output', 'hex', true),
    pg_catalog.set_config('quote_all_identifiers', 'off', true),
    CASE WHEN $1 THEN pg_catalog.set_config('session_replication_role', 'replica', true) END
