-- Sets the columns that refer to rows that are inserted later: the latest version and the
-- pipeline of the last push.
UPDATE merge_requests
SET latest_merge_request_diff_id = (
        SELECT max(merge_request_diffs.id) FROM merge_request_diffs WHERE merge_request_diffs.merge_request_id = merge_requests.id
    ),
    head_pipeline_id = (
        SELECT max(ci_pipelines.id) FROM ci_pipelines WHERE ci_pipelines.merge_request_id = merge_requests.id
    )
WHERE merge_requests.id BETWEEN @first::bigint AND @last::bigint;
