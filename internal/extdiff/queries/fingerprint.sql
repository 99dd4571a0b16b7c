-- Returns a checksum of the positions and row versions of files.
pg_catalog.md5(coalesce(pg_catalog.string_agg(
    file.relative_order::pg_catalog.text OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) file.xmin::pg_catalog.text,
    ',' ORDER BY file.relative_order), ''))
