-- Marks a diff ($1) as stored in the database.
UPDATE "public".merge_request_diffs AS diff
SET stored_externally = false,
    external_diff = NULL
WHERE diff.id OPERATOR(pg_catalog.=) $1
