INSERT INTO issues (
    id, project_id, milestone_id, author_id, updated_by_id, last_edited_by_id, closed_by_id, title, description, state_id,
    created_at, updated_at, closed_at
)
SELECT
    n,
    project_id,
    CASE WHEN n % 4 = 0 THEN (SELECT min(milestones.id) FROM milestones WHERE milestones.project_id = new.project_id) END,
    pg_temp.person(n, 2, @people),
    CASE WHEN n % 3 = 0 THEN pg_temp.person(n, 3, @people) END,
    CASE WHEN n % 5 = 0 THEN pg_temp.person(n, 4, @people) END,
    CASE WHEN closed THEN pg_temp.person(n, 5, @people) END,
    pg_temp.title(n, 6),
    'Steps: open it, wait, look. ' || pg_temp.remark(n, 10),
    CASE WHEN closed THEN 2 ELSE 1 END,
    pg_temp.moment(n, @issues, @today) - interval '3 days',
    pg_temp.moment(n, @issues, @today),
    CASE WHEN closed THEN pg_temp.moment(n, @issues, @today) END
FROM (
    SELECT
        n,
        pg_temp.project(n, 1, @projects) AS project_id,
        pg_temp.pick(n, 20, 3) > 1 AS closed
    FROM generate_series(@first::bigint, @last::bigint) AS n
) AS new;
