INSERT INTO milestones (id, project_id, title, due_date, created_at)
SELECT
    n,
    1 + (n - 1) % @projects,
    '18.' || 1 + (n - 1) / @projects,
    @today::timestamptz::date + pg_temp.pick(n, 1, 200)::integer - 100,
    pg_temp.moment(n, @milestones, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
