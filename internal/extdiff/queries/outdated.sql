-- Is true for a diff of a merge request that was merged or closed more than 7 days ago, and for an older version than the latest one. It
-- compares ids, because a new version that is not yet the latest one is not outdated.
EXISTS (
    SELECT
    FROM "public".merge_requests AS request
    LEFT JOIN "public".merge_request_metrics AS metrics ON metrics.merge_request_id OPERATOR(pg_catalog.=) request.id
    WHERE request.id OPERATOR(pg_catalog.=) diff.merge_request_id
      AND (
          request.state_id OPERATOR(pg_catalog.=) 3
          AND metrics.merged_at OPERATOR(pg_catalog.<) ((pg_catalog.statement_timestamp() AT TIME ZONE 'UTC') OPERATOR(pg_catalog.-) interval '7 days')
          OR request.state_id OPERATOR(pg_catalog.=) 2
          AND metrics.latest_closed_at OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) interval '7 days')
          OR diff.diff_type OPERATOR(pg_catalog.=) 1 AND diff.id OPERATOR(pg_catalog.<) request.latest_merge_request_diff_id
      )
)
