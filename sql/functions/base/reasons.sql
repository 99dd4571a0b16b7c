-- Summarizes recorded errors by cause, the most frequent first: "8 x issues: SQLSTATE
-- 23514: ...; 4 x ...", or returns only the error if all errors have the same cause.
-- Callers pass the first 500 errors of a queue. For tombstones they pass 500 errors per
-- parent table and 1,000 in total. If there are more rows, callers add the element "+",
-- which is then appended to every number. Errors have the same cause if they differ only
-- in words with digits after the table's name, such as keys, rows and process IDs. An
-- SQLSTATE is not such a word. Package internal/operator groups failures for the page by
-- the same rule.
CREATE OR REPLACE FUNCTION "sexton".reasons(errors text[])
RETURNS text
LANGUAGE sql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $sexton$
    SELECT CASE
        WHEN seen.more = '' AND pg_catalog.sum(cause.rows) = pg_catalog.cardinality(errors) AND pg_catalog.count(*) = 1 THEN pg_catalog.min(cause.example)
        ELSE pg_catalog.string_agg(cause.rows || seen.more || ' x ' || cause.example, '; ' ORDER BY cause.place) FILTER (WHERE cause.place <= 3)
            || coalesce('; ' || pg_catalog.sum(cause.rows) FILTER (WHERE cause.place > 3) || seen.more || ' x something else', '')
    END
    FROM (SELECT CASE WHEN '+' = ANY (errors) THEN '+' ELSE '' END) AS seen (more)
    CROSS JOIN (
        SELECT
            pg_catalog.min(failed.error) AS example,
            pg_catalog.count(*) AS rows,
            pg_catalog.row_number() OVER (ORDER BY pg_catalog.count(*) DESC, pg_catalog.min(failed.error)) AS place
        FROM pg_catalog.unnest(errors) AS failed (error)
        WHERE failed.error <> '' AND failed.error <> '+'
        GROUP BY
            pg_catalog.substr(failed.error, 1, pg_catalog.strpos(failed.error, ': ')),
            pg_catalog.regexp_replace(
                pg_catalog.substr(failed.error, pg_catalog.strpos(failed.error, ': ') + 1), '(SQLSTATE [0-9A-Z]{5})|[0-9A-Za-z-]*[0-9][0-9A-Za-z-]*', E'\\1#', 'g'
            )
    ) AS cause
    GROUP BY seen.more;
$sexton$;

COMMENT ON FUNCTION "sexton".reasons(text[]) IS 'Sexton: summarizes errors by cause, with the number of rows of each';
