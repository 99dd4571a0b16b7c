-- The columns of a table, among these, that the role may read.
SELECT attribute.attname::pg_catalog.text FROM pg_catalog.pg_attribute AS attribute
WHERE attribute.attrelid OPERATOR(pg_catalog.=) $1 AND attribute.attname OPERATOR(pg_catalog.=) ANY ($2)
    AND pg_catalog.has_column_privilege(attribute.attrelid, attribute.attnum, 'SELECT')
