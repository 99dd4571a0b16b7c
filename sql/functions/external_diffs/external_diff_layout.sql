-- Returns the positions of the files of a diff in its object, for services that read the
-- object. The text of a file has size_bytes bytes from offset_bytes on, in UTF-8. If
-- is_base64 is set, the text is base64. It is plain text if it cannot be decoded, because
-- old applications stored such texts. Returns no rows for a diff in the database.
CREATE OR REPLACE FUNCTION "sexton".external_diff_layout(diff_id bigint)
RETURNS TABLE (
    relative_order integer,
    path text,
    -- store is 1 for local disk and 2 for object storage.
    store integer,
    object_key text,
    offset_bytes bigint,
    size_bytes bigint,
    is_base64 boolean
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $sexton$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT
        file.relative_order,
        coalesce(file.new_path, file.old_path)::pg_catalog.text,
        diff.external_diff_store::integer,
        pg_catalog.format('merge_request_diffs/mr-%s/%s', diff.merge_request_id, diff.external_diff),
        file.external_diff_offset::bigint,
        file.external_diff_size::bigint,
        coalesce(file."binary", false)
    FROM "public".merge_request_diffs AS diff
    JOIN "public".merge_request_diff_files AS file ON file.merge_request_diff_id = diff.id
    WHERE diff.id = external_diff_layout.diff_id
      AND diff.stored_externally
    ORDER BY file.relative_order;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".external_diff_layout(bigint) IS 'Sexton: the positions of the files of a diff in its object';
