-- Returns the next group below $1 with an id greater than $2, or the first if $2 is NULL,
-- if the lineage $3 is unchanged.
SELECT pg_catalog.to_jsonb({below})
FROM {groups} AS above
JOIN {groups} AS below ON {parent} OPERATOR(pg_catalog.=) {id}
WHERE {id} OPERATOR(pg_catalog.=) $1 AND {lineage} AND {below} OPERATOR(pg_catalog.<>) {id} AND ({below} OPERATOR(pg_catalog.>) $2) IS NOT FALSE
ORDER BY {below}
LIMIT 1
