-- Every eighth group, rounded up, is a root, and every group has up to three children. So
-- the trees have three levels. From the last group backwards, every twenty-fifth is
-- marked for deletion and renamed accordingly.
INSERT INTO groups (
    id, parent_id, name, path, description, visibility_level, traversal_ids, marked_for_deletion_on, created_at, updated_at
)
SELECT
    n,
    CASE WHEN n > roots THEN parent END,
    name || CASE WHEN marked THEN '-deletion_scheduled-' || n ELSE '' END,
    lower(name) || '-' || n || CASE WHEN marked THEN '-deletion_scheduled-' || n ELSE '' END,
    'Everything about ' || lower(name) || '.',
    CASE WHEN n % 3 = 0 THEN 20 ELSE 0 END,
    CASE
        WHEN n <= roots THEN ARRAY[n]
        WHEN parent <= roots THEN ARRAY[parent, n]
        ELSE ARRAY[1 + (parent - roots - 1) / 3, parent, n]
    END,
    CASE WHEN marked THEN @today::timestamptz::date - pg_temp.pick(n, 2, 45)::integer END,
    pg_temp.moment(n, @groups, @today) - interval '100 days',
    pg_temp.moment(n, @groups, @today)
FROM (
    SELECT
        n,
        (@groups + 7) / 8 AS roots,
        1 + (n - (@groups + 7) / 8 - 1) / 3 AS parent,
        (@groups - n) % 25 = 0 AND (@groups - n) / 25 < @group_deletion_schedules AS marked,
        (ARRAY['Platform', 'Mobile', 'Design', 'Research', 'Operations', 'Security', 'Billing', 'Docs', 'Data', 'Support', 'Labs', 'Infra'])[pg_temp.pick(n, 1, 12)] AS name
    FROM generate_series(@first::bigint, @last::bigint) AS n
) AS new;
