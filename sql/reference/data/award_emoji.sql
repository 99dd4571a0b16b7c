-- Up to three people award the same emoji to the same issue or merge request. If several
-- of them are deleted, the ghost user takes over only one of these rows.
INSERT INTO award_emoji (id, user_id, awardable_type, awardable_id, name, created_at)
SELECT
    n,
    1 + (pg_temp.person(place, 1, @people) + nth) % @people,
    CASE WHEN n % 2 = 1 THEN 'Issue' ELSE 'MergeRequest' END,
    place * CASE WHEN n % 2 = 1 THEN @issues::bigint ELSE @merge_requests::bigint END / places,
    (ARRAY['thumbsup', 'thumbsup', 'tada', 'heart', 'eyes'])[pg_temp.pick(place, 2, 5)],
    pg_temp.moment(n, @award_emoji, @today)
FROM (
    SELECT
        n,
        (n + 5) / 6 AS place,
        (@award_emoji + 5) / 6 AS places,
        (n - 1) % 6 / 2 AS nth
    FROM generate_series(@first::bigint, @last::bigint) AS n
) AS new;
