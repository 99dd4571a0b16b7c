-- What values are read by, as the function undo_text wrote them. With $1 neither triggers nor foreign keys fire.
SELECT pg_catalog.set_config('DateStyle', 'ISO, YMD', true), pg_catalog.set_config('IntervalStyle', 'postgres', true),
    pg_catalog.set_config('TimeZone', 'UTC', true), pg_catalog.set_config('extra_float_digits', '1', true),
    pg_catalog.set_config('lc_monetary', 'C', true), pg_catalog.set_config('xmloption', 'content', true),
    pg_catalog.set_config('bytea_output', 'hex', true),
    CASE WHEN $1 THEN pg_catalog.set_config('session_replication_role', 'replica', true) END
