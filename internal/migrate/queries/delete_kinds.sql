-- Deletes the kinds that are not in the list $1, a JSON array of objects.
DELETE FROM "sexton".job_kinds AS k
WHERE NOT EXISTS (
    SELECT
    FROM pg_catalog.jsonb_to_recordset($1::pg_catalog.jsonb) AS w (kind text)
    WHERE w.kind = k.kind
);
