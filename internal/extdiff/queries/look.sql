-- How does the diff $1 stand? Some callers lock it.
SELECT diff.merge_request_id, coalesce(diff.files_count, 0)::bigint, coalesce(diff.stored_externally, false), {kept}, coalesce({eligible}, false)
FROM "public".merge_request_diffs AS diff
WHERE diff.id OPERATOR(pg_catalog.=) $1 {lock}
