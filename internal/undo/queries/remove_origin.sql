-- Removes the origin $1 from the tombstones and rechecks of parents with the keys $2, or of all parents if $2 is NULL. After that, the cleanup of
-- their children keeps no rows for the set.
WITH late AS (
    UPDATE "sexton".swept AS swept
    SET origins = ARRAY(
        SELECT CASE WHEN former.origin OPERATOR(pg_catalog.<>) $1::pg_catalog.int8
            OR former.key OPERATOR(pg_catalog.<>) ALL ($2::pg_catalog.text[]) THEN former.origin END
        FROM ROWS FROM (pg_catalog.unnest(coalesce(swept.integer_keys::pg_catalog.text[], swept.text_keys)), pg_catalog.unnest(swept.origins))
            WITH ORDINALITY AS former (key, origin, place)
        ORDER BY former.place
    )
    WHERE swept.origins OPERATOR(pg_catalog.@>) ARRAY[$1::pg_catalog.int8]
)
UPDATE "public".loose_foreign_keys_deleted_records AS waiting SET origin = NULL
WHERE waiting.origin OPERATOR(pg_catalog.=) $1::pg_catalog.int8
  AND coalesce(waiting.parent_oid, $3::pg_catalog.oid) OPERATOR(pg_catalog.=) $3::pg_catalog.oid
  AND ($2::pg_catalog.text[] IS NULL
    OR (coalesce(waiting.primary_key_value::pg_catalog.text, waiting.primary_key_text)
        OPERATOR(pg_catalog.=) ANY (SELECT given.key FROM pg_catalog.unnest($2::pg_catalog.text[]) AS given (key))) IS TRUE) -- delete_tombstones.sql has the reason for IS TRUE.
