-- Locks a diff ($1) if its merge request ($2), its store ($3) and the name of its object ($4) are still the same.
SELECT
FROM "public".merge_request_diffs AS diff
WHERE diff.id OPERATOR(pg_catalog.=) $1
  AND diff.stored_externally
  AND diff.merge_request_id OPERATOR(pg_catalog.=) $2
  AND coalesce(diff.external_diff_store, 1) OPERATOR(pg_catalog.=) $3::integer
  AND diff.external_diff::pg_catalog.text OPERATOR(pg_catalog.=) $4::pg_catalog.text
FOR UPDATE
