-- Returns the length of a file's text in the object. In a UTF-8 database the expression does not read the text.
CASE
    WHEN pg_catalog.getdatabaseencoding() OPERATOR(pg_catalog.=) 'UTF8' THEN coalesce(pg_catalog.octet_length(file.diff), 0)
    ELSE coalesce(pg_catalog.octet_length("sexton".external_diff_body(file.diff)), 0)
END
