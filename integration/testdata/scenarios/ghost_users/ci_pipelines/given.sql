INSERT INTO ci_pipelines (id, user_id, partition_id, project_id, ref, sha, status) VALUES
    (1, 1, 100, 100, 'main', 'c0ffee', 'success'),
    (2, 2, 100, 100, 'main', 'c0ffee', 'success');
