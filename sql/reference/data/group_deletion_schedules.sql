-- By the group's owner or, for every third, by a user who may not have the permission any more.
INSERT INTO group_deletion_schedules (group_id, user_id, marked_for_deletion_on)
SELECT
    groups.id,
    CASE WHEN n % 3 = 0 THEN pg_temp.pick(n, 1, @people) ELSE members.user_id END,
    groups.marked_for_deletion_on
FROM generate_series(@first::bigint, @last::bigint) AS n
JOIN groups ON groups.id = @groups - 25 * (n - 1)
JOIN members ON members.id = groups.id;
