-- Only users 1, 5, 9, ... report other users, because a user who has reported somebody
-- cannot be deleted directly.
INSERT INTO abuse_reports (id, user_id, reporter_id, message, category, status, created_at, resolved_at)
SELECT
    n,
    pg_temp.pick(n, 1, @people),
    pg_temp.pick(n, 2, (@people + 3) / 4) * 4 - 3,
    (ARRAY['Spam in issue comments.', 'Advertises a shop in every profile field.', 'Posts somebody else''s credentials.'])[pg_temp.pick(n, 3, 3)],
    pg_temp.pick(n, 4, 8),
    1 + n % 2,
    pg_temp.moment(n, @abuse_reports, @today) - interval '1 day',
    CASE WHEN n % 2 = 1 THEN pg_temp.moment(n, @abuse_reports, @today) END
FROM generate_series(@first::bigint, @last::bigint) AS n;
