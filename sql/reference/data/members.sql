-- The first members own the groups, in the order of groups. The next members are the
-- second members of all groups. The remaining members belong to projects.
INSERT INTO members (
    id, user_id, created_by_id, source_type, source_id, access_level, state, requested_at, expires_at,
    invite_email, invite_token, invite_accepted_at, created_at
)
SELECT
    n,
    CASE WHEN NOT invited THEN 1 + (pg_temp.pick(source_id, 1, @people) + nth) % @people END,
    CASE WHEN n > @groups THEN 1 + pg_temp.pick(source_id, 1, @people) % @people END,
    CASE WHEN in_group THEN 'Namespace' ELSE 'Project' END,
    source_id,
    CASE WHEN n <= @groups THEN 50 WHEN in_group THEN (ARRAY[30, 40, 50])[pg_temp.pick(n, 2, 3)] ELSE (ARRAY[10, 20, 30, 30, 40])[pg_temp.pick(n, 2, 5)] END,
    0,
    CASE WHEN NOT in_group AND n % 31 = 0 THEN pg_temp.moment(n, @members, @today) END,
    CASE WHEN NOT in_group AND n % 13 = 0 THEN @today::timestamptz::date + pg_temp.pick(n, 3, 200)::integer END,
    CASE WHEN invited THEN 'invited' || n || '@example.net' END,
    CASE WHEN invited THEN pg_temp.sha(n, 4) END,
    CASE WHEN NOT invited AND n % 3 = 0 THEN pg_temp.moment(n, @members, @today) END,
    pg_temp.moment(n, @members, @today)
FROM (
    SELECT
        n,
        n <= 2 * @groups AS in_group,
        n > 2 * @groups AND n % 23 = 0 AS invited,
        CASE WHEN n <= 2 * @groups THEN 1 + (n - 1) % @groups ELSE 1 + (n - 2 * @groups - 1) % @projects END AS source_id,
        CASE WHEN n <= 2 * @groups THEN (n - 1) / @groups ELSE (n - 2 * @groups - 1) / @projects END AS nth
    FROM generate_series(@first::bigint, @last::bigint) AS n
) AS new;
