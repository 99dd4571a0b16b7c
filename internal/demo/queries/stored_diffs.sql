SELECT diff.merge_request_id, diff.external_diff FROM "public".merge_request_diffs AS diff WHERE diff.stored_externally
