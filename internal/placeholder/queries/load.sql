-- Returns at most $4 eligible rows above the id $3, in the order of their ids, and
-- whether the job of each is waiting or running. UNION instead of UNION ALL keeps the
-- planner from scanning the whole table by its primary key.
SELECT detail.id, detail.placeholder_user_id, {waits}
FROM (
    SELECT * FROM (
        SELECT detail.id FROM {detail} WHERE {untried} AND detail.id > $3 AND {unqueued}
        UNION
        SELECT detail.id FROM {detail} WHERE {tried} AND detail.id > $3 AND {unqueued}
    ) AS eligible ORDER BY eligible.id LIMIT $4
-- The jobs are queried only for the rows of the page.
) AS page JOIN {detail} ON detail.id = page.id
ORDER BY detail.id
