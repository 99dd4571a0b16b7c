-- A page of due groups above $1, or from the first if it is NULL, by their ids, $2 at most.
SELECT pg_catalog.to_jsonb(due.id)
{due}
  AND (due.id > $1) IS NOT FALSE
ORDER BY due.id
LIMIT $2
