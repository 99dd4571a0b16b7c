UPDATE "public".{table} AS waiting
SET consume_after = pg_catalog.clock_timestamp()
WHERE waiting.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT ahead.ctid
    FROM "public".{table} AS ahead
    WHERE ahead.created_at OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp()
      AND ahead.consume_after OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp()
      AND ahead.consume_after OPERATOR(pg_catalog.<) 'infinity'
    FOR UPDATE SKIP LOCKED
))
