(SELECT pg_catalog.count(*) FROM (
    (SELECT 1 FROM {detail} WHERE {untried} AND {unqueued} AND NOT {waits} LIMIT 10001)
    UNION ALL
    (SELECT 1 FROM {detail} WHERE {tried} AND {unqueued} AND NOT {waits} LIMIT 10001)
) AS counted)
