INSERT INTO issue_assignees (issue_id, user_id)
SELECT
    1 + (n - 1) * @issues / @issue_assignees,
    pg_temp.person(n, 1, @people)
FROM generate_series(@first::bigint, @last::bigint) AS n;
