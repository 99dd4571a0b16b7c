-- Removes the kinds that are not in the list $1, a JSON array of objects.
DELETE FROM "sexton".job_kinds AS k
WHERE NOT EXISTS (
    SELECT
    FROM jsonb_to_recordset($1::jsonb) AS w (kind text)
    WHERE w.kind = k.kind
);
