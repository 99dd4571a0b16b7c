-- The length of a file's text in its object. Where the database has UTF-8 it is known without reading the text.
CASE
    WHEN pg_catalog.getdatabaseencoding() OPERATOR(pg_catalog.=) 'UTF8' THEN coalesce(pg_catalog.octet_length(file.diff), 0)
    ELSE coalesce(pg_catalog.octet_length("sexton".external_diff_body(file.diff)), 0)
END
