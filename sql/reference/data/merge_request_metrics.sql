INSERT INTO merge_request_metrics (
    id, merge_request_id, merged_by_id, latest_closed_by_id, merged_at, latest_closed_at, created_at, updated_at
)
SELECT
    id,
    id,
    merge_user_id,
    CASE WHEN state_id = 2 THEN pg_temp.person(id, 1, @people) END,
    CASE WHEN state_id = 3 THEN updated_at END,
    CASE WHEN state_id = 2 THEN updated_at END,
    created_at,
    updated_at
FROM merge_requests
WHERE id BETWEEN @first::bigint AND @last::bigint;
