-- Returns the time at which the diff $1 became due, by the rule outdated if $2 is true, and otherwise by the rule always. The result is never before
-- the installation of external diffs.
SELECT greatest(installation.created_at, CASE WHEN $2 THEN (
    SELECT pg_catalog.min(outdated.at)
    FROM (
        SELECT (metrics.merged_at + interval '7 days') AT TIME ZONE 'UTC' AS at
        FROM "public".merge_request_metrics AS metrics WHERE metrics.merge_request_id = diff.merge_request_id AND request.state_id = 3
        UNION ALL
        SELECT metrics.latest_closed_at + interval '7 days'
        FROM "public".merge_request_metrics AS metrics WHERE metrics.merge_request_id = diff.merge_request_id AND request.state_id = 2
        UNION ALL
        (
            SELECT newer.created_at AT TIME ZONE 'UTC'
            FROM "public".merge_request_diffs AS newer
            WHERE diff.diff_type = 1 AND newer.merge_request_id = diff.merge_request_id AND newer.id > diff.id
              AND newer.id <= request.latest_merge_request_diff_id
            ORDER BY newer.id
            LIMIT 1
        )
    ) AS outdated
) ELSE diff.created_at AT TIME ZONE 'UTC' END)
FROM "sexton".external_diff_installation AS installation
JOIN "public".merge_request_diffs AS diff ON diff.id = $1
LEFT JOIN "public".merge_requests AS request ON request.id = diff.merge_request_id
