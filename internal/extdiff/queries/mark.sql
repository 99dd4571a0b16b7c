-- Marks a diff ($1) as external, with the name ($2) and the store ($3) of its object and the number of its files ($4).
UPDATE "public".merge_request_diffs AS diff
SET stored_externally = true,
    external_diff = $2::pg_catalog.text,
    external_diff_store = $3::integer,
    files_count = least($4::bigint, 32767),
    sorted = true
WHERE diff.id OPERATOR(pg_catalog.=) $1
