-- A page of due groups above $1 by their ids, $2 at most.
SELECT due.id
{due}
  AND due.id OPERATOR(pg_catalog.>) $1
ORDER BY due.id
LIMIT $2
