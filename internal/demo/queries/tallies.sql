-- What the runs after $1 have counted, by kind: how many they are, what failed in them, and the sums of the statistics $2. Of a statistic by
-- table or column there is a row for each.
SELECT run.kind, counted.name, counted.place, sum(counted.n)::bigint
FROM "sexton".runs AS run
CROSS JOIN LATERAL (
    SELECT 'runs', '', run.folded
    UNION ALL
    SELECT 'errors', '', (failed.value ->> 'count')::bigint
    FROM json_array_elements(CASE json_typeof(run.stats -> 'errors') WHEN 'array' THEN run.stats -> 'errors' END) AS failed
    UNION ALL
    SELECT stat.key, '', stat.value::text::bigint
    FROM json_each(run.stats) AS stat
    WHERE stat.key = ANY ($2::text[]) AND json_typeof(stat.value) NOT IN ('object', 'null')
    UNION ALL
    SELECT stat.key, placed.key, placed.value::bigint
    FROM json_each(run.stats) AS stat, json_each_text(CASE json_typeof(stat.value) WHEN 'object' THEN stat.value END) AS placed
    WHERE stat.key = ANY ($2)
) AS counted (name, place, n)
WHERE run.id > $1
GROUP BY 1, 2, 3
