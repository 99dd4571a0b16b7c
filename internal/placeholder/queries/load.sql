-- Rows that are eligible, in the order of their ids, above the id $3, at most $4; is the user a placeholder, and does its job wait.
-- UNION, where UNION ALL would do: it keeps the planner from walking through the whole table by its primary key.
SELECT detail.id, detail.placeholder_user_id, detail.deletion_attempts, detail.blocked_by, {placeholder}, {waits}
FROM (
    SELECT * FROM (
        SELECT detail.id FROM {detail} WHERE {untried} AND detail.id OPERATOR(pg_catalog.>) $3 AND {unqueued}
        UNION
        SELECT detail.id FROM {detail} WHERE {tried} AND detail.id OPERATOR(pg_catalog.>) $3 AND {unqueued}
    ) AS eligible ORDER BY eligible.id LIMIT $4
-- All else is looked for after the limit.
) AS page JOIN {detail} ON detail.id OPERATOR(pg_catalog.=) page.id
ORDER BY detail.id
