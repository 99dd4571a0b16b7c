-- It compares ids, as a version that has come in but is not the latest yet is not outdated.
EXISTS (
    SELECT
    FROM "public".merge_requests AS request
    LEFT JOIN "public".merge_request_metrics AS metrics ON metrics.merge_request_id = request.id
    WHERE request.id = diff.merge_request_id
      AND (
          request.state_id = 3 AND metrics.merged_at < (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC') - interval '7 days'
          OR request.state_id = 2 AND metrics.latest_closed_at < pg_catalog.statement_timestamp() - interval '7 days'
          OR diff.diff_type = 1 AND diff.id < request.latest_merge_request_diff_id
      )
)
