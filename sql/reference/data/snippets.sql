INSERT INTO snippets (id, project_id, author_id, type, title, file_name, content, visibility_level, created_at, updated_at)
SELECT
    n,
    CASE WHEN n % 3 > 0 THEN pg_temp.pick(n, 1, @projects) END,
    pg_temp.person(n, 2, @people),
    CASE WHEN n % 3 > 0 THEN 'ProjectSnippet' ELSE 'PersonalSnippet' END,
    pg_temp.title(n, 3),
    'snippet' || n || '.sh',
    E'#!/bin/sh\nset -eu\ngit fetch origin\ngit rebase origin/main\n# ' || pg_temp.sha(n, 7) || E'\n',
    CASE WHEN n % 4 = 0 THEN 20 ELSE 0 END,
    pg_temp.moment(n, @snippets, @today),
    pg_temp.moment(n, @snippets, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
