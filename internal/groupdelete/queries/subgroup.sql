-- The next group below $1 whose id is greater than $2, as long as the line $3 to it holds.
SELECT below.id
FROM {groups} AS above
JOIN {groups} AS below ON below.parent_id OPERATOR(pg_catalog.=) above.id
WHERE above.id OPERATOR(pg_catalog.=) $1 AND {line} AND below.id OPERATOR(pg_catalog.<>) above.id AND below.id OPERATOR(pg_catalog.>) $2::bigint
ORDER BY below.id
LIMIT 1
