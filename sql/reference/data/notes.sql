-- A few notes are imported. Their authors are placeholders of the first half. The other
-- placeholders have written nothing, so they can be deleted.
INSERT INTO notes (id, project_id, noteable_type, noteable_id, author_id, note, system, created_at, updated_at)
SELECT
    n,
    coalesce(issues.project_id, merge_requests.target_project_id),
    CASE WHEN n % 2 = 0 THEN 'Issue' ELSE 'MergeRequest' END,
    coalesce(issues.id, merge_requests.id),
    CASE
        WHEN n % 200 = 0 AND @import_placeholder_user_details > 1 THEN @people + pg_temp.pick(n, 3, @import_placeholder_user_details / 2)
        ELSE pg_temp.person(n, 4, @people)
    END,
    CASE WHEN n % 7 = 0 THEN 'mentioned in commit ' || pg_temp.sha(n, 5) ELSE pg_temp.remark(n, 6) END,
    n % 7 = 0,
    pg_temp.moment(n, @notes, @today),
    pg_temp.moment(n, @notes, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n
LEFT JOIN issues ON n % 2 = 0 AND issues.id = pg_temp.skewed(n, 1, @issues, 1.5)
LEFT JOIN merge_requests ON n % 2 = 1 AND merge_requests.id = pg_temp.skewed(n, 2, @merge_requests, 1.5);
