-- Returns the default btree operator class of each type: the type and the operator
-- family.
SELECT pg_catalog.format('%s.%I', type.typnamespace::pg_catalog.regnamespace, type.typname),
    pg_catalog.format('%s.%I', family.opfnamespace::pg_catalog.regnamespace, family.opfname)
FROM pg_catalog.pg_opclass AS class
JOIN pg_catalog.pg_opfamily AS family ON family.oid = class.opcfamily
JOIN pg_catalog.pg_type AS type ON type.oid = class.opcintype
WHERE class.opcdefault AND class.opcmethod = (SELECT method.oid FROM pg_catalog.pg_am AS method WHERE method.amname = 'btree');
