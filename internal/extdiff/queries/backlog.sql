-- The database defines what is left, for "sexton".backlog as well, and a role that may see that need not read the diffs.
SELECT diffs.pending, diffs.capped, "sexton".external_diff_bytes($1),
    (SELECT pg_catalog.count(*) FROM (SELECT FROM "sexton".external_diff_removals LIMIT 10000) AS counted)
FROM "sexton".backlog_of_external_diffs() AS diffs
