INSERT INTO events (id, project_id, author_id, action, created_at)
SELECT
    n,
    pg_temp.project(n, 1, @projects),
    pg_temp.person(n, 2, @people),
    pg_temp.pick(n, 3, 9),
    pg_temp.moment(n, @events, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
