-- Reads up to $2 diffs after the id $1. Returns their number, the last id, and up to $3 due diffs.
WITH scanned AS MATERIALIZED (
    SELECT diff.id
    FROM "public".merge_request_diffs AS diff
    WHERE {in_database} AND diff.id > $1
    ORDER BY diff.id
    LIMIT $2
), due AS MATERIALIZED (
    SELECT diff.id
    FROM scanned
    JOIN "public".merge_request_diffs AS diff ON diff.id = scanned.id
    WHERE {eligible}
      AND NOT {refused}
    ORDER BY diff.id
    LIMIT $3
)
SELECT (SELECT pg_catalog.count(*) FROM scanned), (SELECT coalesce(pg_catalog.max(scanned.id), 0) FROM scanned),
    ARRAY(SELECT due.id FROM due ORDER BY due.id)
