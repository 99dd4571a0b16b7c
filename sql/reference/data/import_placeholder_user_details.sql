-- Every placeholder has one row. The group of every third placeholder does not exist any
-- more. Such a placeholder can be deleted unless it has too many attempts.
INSERT INTO import_placeholder_user_details (
    id, placeholder_user_id, namespace_id, organization_id, deletion_attempts, last_deletion_attempt_at, created_at, updated_at
)
SELECT
    n,
    @people + n,
    CASE WHEN n % 3 <> 1 THEN pg_temp.pick(n, 1, (@groups + 7) / 8) END,
    1,
    attempts,
    CASE WHEN attempts > 0 THEN @today::timestamptz - interval '72 hours' END,
    @today::timestamptz - interval '2000 hours',
    @today::timestamptz - interval '72 hours'
FROM (
    SELECT
        n,
        CASE WHEN n % 3 <> 1 THEN 0 WHEN n / 3 % 8 = 5 THEN 3 WHEN n / 3 % 8 = 7 THEN 15 ELSE 0 END AS attempts
    FROM generate_series(@first::bigint, @last::bigint) AS n
) AS new;
