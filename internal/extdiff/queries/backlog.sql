-- Counts the backlog by the functions of "sexton".backlog, so that the role needs no privilege to read the diffs.
SELECT diffs.pending, diffs.capped, "sexton".external_diff_bytes($1),
    (SELECT pg_catalog.count(*) FROM (SELECT FROM "sexton".external_diff_removals LIMIT 10000) AS counted)
FROM "sexton".backlog_of_external_diffs() AS diffs
