-- Returns at most $2 due groups with ids above $1, or the first due groups if $1 is NULL.
SELECT pg_catalog.to_jsonb(due.id)
{due}
  AND (due.id > $1) IS NOT FALSE
ORDER BY due.id
LIMIT $2
