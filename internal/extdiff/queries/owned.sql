-- Reports whether files have a column project_id.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_attribute AS attribute
    WHERE attribute.attrelid OPERATOR(pg_catalog.=) '"public".merge_request_diff_files'::pg_catalog.regclass
      AND attribute.attname OPERATOR(pg_catalog.=) 'project_id' AND NOT attribute.attisdropped
)
