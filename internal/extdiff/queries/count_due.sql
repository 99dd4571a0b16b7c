-- Counts the due diffs among the next {looked} diffs after the position of the last run. Also returns whether there may be more diffs.
WITH place AS (
    SELECT coalesce(pg_catalog.max(cursor.after_id) FILTER (
        WHERE cursor.round_began_at > pg_catalog.statement_timestamp() - pg_catalog.make_interval(secs => {round})
    ), 0) AS after_id
    FROM "sexton".external_diff_cursors AS cursor
    WHERE cursor.rule = '{cursor}'
), scanned AS MATERIALIZED (
    SELECT diff.id
    FROM "public".merge_request_diffs AS diff
    WHERE {in_database} AND diff.id > (SELECT place.after_id FROM place)
    ORDER BY diff.id
    LIMIT {looked}
)
SELECT
    (SELECT pg_catalog.count(*) FROM scanned JOIN "public".merge_request_diffs AS diff ON diff.id = scanned.id WHERE {eligible}),
    (SELECT pg_catalog.count(*) = {looked} FROM scanned)
