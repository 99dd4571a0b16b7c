-- Every tenth label belongs to a group.
INSERT INTO labels (id, project_id, group_id, title, color, created_at)
SELECT
    n,
    CASE WHEN n % 10 > 0 THEN 1 + (n - 1) % @projects END,
    CASE WHEN n % 10 = 0 THEN 1 + (n / 10 - 1) % @groups END,
    (ARRAY['bug', 'feature', 'documentation', 'backend', 'frontend', 'security'])[1 + (n - 1) / @projects],
    (ARRAY['#dc143c', '#6699cc', '#009966', '#ed9121', '#9400d3', '#36454f'])[1 + (n - 1) / @projects],
    pg_temp.moment(n, @labels, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
