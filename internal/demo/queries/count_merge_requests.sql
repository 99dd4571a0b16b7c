SELECT count(*), coalesce(min(request.id), 0), coalesce(max(request.id), 0) FROM "public".merge_requests AS request
