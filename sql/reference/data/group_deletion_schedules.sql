-- The group's owner has scheduled the deletion. For every third group it is a user who
-- may have lost the permission.
INSERT INTO group_deletion_schedules (group_id, user_id, marked_for_deletion_on)
SELECT
    groups.id,
    CASE WHEN n % 3 = 0 THEN pg_temp.pick(n, 1, @people) ELSE members.user_id END,
    groups.marked_for_deletion_on
FROM generate_series(@first::bigint, @last::bigint) AS n
JOIN groups ON groups.id = @groups - 25 * (n - 1)
JOIN members ON members.id = groups.id;
