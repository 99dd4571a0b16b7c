-- Gives the files without a project that of their diff, or else the one that the merge request goes to.
-- It reads both by their names in the row, which the tables of some applications do not have.
,
    project_id = coalesce(file.project_id, (
        SELECT coalesce(
            (pg_catalog.to_jsonb(parent) OPERATOR(pg_catalog.->>) 'project_id')::bigint,
            (pg_catalog.to_jsonb(request) OPERATOR(pg_catalog.->>) 'target_project_id')::bigint)
        FROM "public".merge_request_diffs AS parent
        LEFT JOIN "public".merge_requests AS request ON request.id OPERATOR(pg_catalog.=) parent.merge_request_id
        WHERE parent.id OPERATOR(pg_catalog.=) $1
    ))
