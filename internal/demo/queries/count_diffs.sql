SELECT count(*) FILTER (WHERE diff.id IS NULL AND request.id IS NULL), count(*) FILTER (WHERE diff.id IS NULL AND request.id IS NOT NULL),
    count(*) FILTER (WHERE diff.stored_externally IS NOT TRUE AND diff.id IS NOT NULL AND known.skip_reason IS NULL),
    count(known.skip_reason)
FROM (SELECT DISTINCT taken.diff_id, taken.merge_request_id FROM demo.diffs AS taken) AS taken
LEFT JOIN "public".merge_requests AS request ON request.id = taken.merge_request_id
LEFT JOIN "public".merge_request_diffs AS diff ON diff.id = taken.diff_id
LEFT JOIN "sexton".external_diffs AS known ON known.diff_id = taken.diff_id
