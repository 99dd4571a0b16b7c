INSERT INTO user_achievements (id, achievement_id, user_id, awarded_by_user_id, revoked_by_user_id, created_at, revoked_at)
SELECT
    n,
    pg_temp.pick(n, 1, @achievements),
    pg_temp.person(n, 2, @people),
    pg_temp.person(n, 3, @people),
    CASE WHEN n % 11 = 0 THEN pg_temp.person(n, 4, @people) END,
    pg_temp.moment(n, @user_achievements, @today) - interval '1 day',
    CASE WHEN n % 11 = 0 THEN pg_temp.moment(n, @user_achievements, @today) END
FROM generate_series(@first::bigint, @last::bigint) AS n;
