-- Returns the merge request and files_count of the diff $1, and whether it is external, kept in the database, and due. {lock} is a locking clause
-- or empty.
SELECT diff.merge_request_id, coalesce(diff.files_count, 0)::bigint, coalesce(diff.stored_externally, false), {kept}, coalesce({eligible}, false)
FROM "public".merge_request_diffs AS diff
WHERE diff.id OPERATOR(pg_catalog.=) $1 {lock}
