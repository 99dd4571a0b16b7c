-- Sets the project of the files of a diff ($1) that have none to the project of the diff, or else to the target project of the merge request. It reads
-- both columns from to_jsonb, because some applications do not have these columns.
UPDATE "public".merge_request_diff_files AS file
SET project_id = coalesce(
        (pg_catalog.to_jsonb(parent) OPERATOR(pg_catalog.->>) 'project_id')::bigint,
        (pg_catalog.to_jsonb(request) OPERATOR(pg_catalog.->>) 'target_project_id')::bigint)
FROM "public".merge_request_diffs AS parent
LEFT JOIN "public".merge_requests AS request ON request.id OPERATOR(pg_catalog.=) parent.merge_request_id
WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1 AND file.project_id IS NULL AND parent.id OPERATOR(pg_catalog.=) $1
