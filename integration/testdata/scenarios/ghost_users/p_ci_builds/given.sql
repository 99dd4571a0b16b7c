-- The builds are in two partitions.
INSERT INTO p_ci_builds (id, partition_id, commit_id, project_id, user_id, name, stage, status) VALUES
    (1, 100, 1, 100, 1, 'test', 'test', 'success'),
    (2, 101, 1, 100, 1, 'test', 'test', 'success'),
    (3, 101, 1, 100, 2, 'test', 'test', 'success');
