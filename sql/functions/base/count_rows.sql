-- Adds rows to a figure of the run that the transaction belongs to, if any, and returns them. A session is one server process: no two
-- transactions have it at the same time, so none waits for another one's row.
CREATE OR REPLACE FUNCTION "sexton".count_rows(of_field text, of_label text, more bigint)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    current_run bigint := nullif(pg_catalog.current_setting('sexton.run', true), '');
BEGIN
    IF more > 0 AND current_run > 0 THEN
        UPDATE "sexton".run_counts AS known
        SET rows = known.rows + more
        WHERE known.run_id = current_run AND known.backend = pg_catalog.pg_backend_pid() AND known.field = of_field AND known.label = of_label;

        IF FOUND THEN
            RETURN more;
        END IF;

        -- Further figures of a session's first batch go into its row, a few of them: most runs are that small, and a row costs more than a figure.
        UPDATE "sexton".run_counts AS first
        SET others = coalesce(first.others, '[]') || pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_object('field', of_field, 'label', of_label, 'rows', more))
        WHERE first.run_id = current_run AND first.backend = pg_catalog.pg_backend_pid()
            AND first.xmin::pg_catalog.text::bigint = pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint % 4294967296
            AND pg_catalog.jsonb_array_length(coalesce(first.others, '[]')) < 3
            AND NOT EXISTS (
                SELECT FROM "sexton".run_counts AS second
                WHERE second.run_id = current_run AND second.backend = pg_catalog.pg_backend_pid() AND second.id <> first.id
            );

        IF NOT FOUND THEN
            INSERT INTO "sexton".run_counts (run_id, backend, field, label, rows) VALUES (current_run, pg_catalog.pg_backend_pid(), of_field, of_label, more);
        END IF;
    END IF;

    RETURN more;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".count_rows(text, text, bigint) IS 'Sexton: adds rows of a batch to the figures of its run';
