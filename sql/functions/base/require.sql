-- Raises SX003, which aborts the transaction, unless a condition holds.
CREATE OR REPLACE FUNCTION "sexton".require(holds boolean)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    IF holds IS NOT TRUE THEN
        RAISE EXCEPTION 'rows have changed since they were read' USING ERRCODE = 'SX003';
    END IF;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".require(boolean) IS 'Sexton: fails a transaction unless a condition holds';
