INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch)
SELECT n, 100, 'merge request', 'branch', 'main' FROM generate_series(1, 3) AS n;
INSERT INTO merge_request_metrics (id, merge_request_id, merged_by_id, latest_closed_by_id) VALUES
    (1, 1, 1, 2),
    (2, 2, 2, 1),
    (3, 3, 2, 2);
