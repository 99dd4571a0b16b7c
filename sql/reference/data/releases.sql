INSERT INTO releases (id, project_id, author_id, tag, name, description, released_at, created_at)
SELECT
    n,
    pg_temp.pick(n, 1, @projects),
    pg_temp.person(n, 2, @people),
    'v1.' || n,
    'Release 1.' || n,
    '- ' || pg_temp.title(n, 3) || E'\n- ' || pg_temp.title(n, 7),
    pg_temp.moment(n, @releases, @today),
    pg_temp.moment(n, @releases, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
