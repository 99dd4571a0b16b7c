-- merge_requests_heads.sql sets the latest diff and the pipeline.
INSERT INTO merge_requests (
    id, target_project_id, source_project_id, milestone_id, author_id, assignee_id, updated_by_id, last_edited_by_id, merge_user_id,
    title, description, source_branch, target_branch, state_id, created_at, updated_at
)
SELECT
    n,
    project_id,
    CASE WHEN n % 12 = 0 THEN pg_temp.pick(n, 2, @projects) ELSE project_id END,
    CASE WHEN n % 4 = 0 THEN (SELECT min(milestones.id) FROM milestones WHERE milestones.project_id = new.project_id) END,
    pg_temp.person(n, 3, @people),
    CASE WHEN n % 2 = 0 THEN pg_temp.person(n, 4, @people) END,
    CASE WHEN n % 3 = 0 THEN pg_temp.person(n, 5, @people) END,
    CASE WHEN n % 5 = 0 THEN pg_temp.person(n, 6, @people) END,
    CASE WHEN state_id = 3 THEN pg_temp.person(n, 7, @people) END,
    pg_temp.title(n, 8),
    pg_temp.remark(n, 12),
    replace(lower(pg_temp.title(n, 8)), ' ', '-'),
    'main',
    state_id,
    pg_temp.moment(n, @merge_requests, @today) - interval '2 days',
    pg_temp.moment(n, @merge_requests, @today)
FROM (
    SELECT
        n,
        pg_temp.project(n, 1, @projects) AS project_id,
        -- The newest merge requests are open, and most of the older ones are merged.
        CASE WHEN n > @merge_requests * 9 / 10 OR n % 17 = 0 THEN 1 WHEN n % 8 = 0 THEN 2 ELSE 3 END AS state_id
    FROM generate_series(@first::bigint, @last::bigint) AS n
) AS new;
