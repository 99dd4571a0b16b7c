SELECT pg_catalog.format('%I.%I', typehome.nspname, type.typname), pg_catalog.format('%I.%I', home.nspname, family.opfname)
FROM pg_catalog.pg_opclass AS class
JOIN pg_catalog.pg_am AS method ON method.oid OPERATOR(pg_catalog.=) class.opcmethod
JOIN pg_catalog.pg_opfamily AS family ON family.oid OPERATOR(pg_catalog.=) class.opcfamily
JOIN pg_catalog.pg_namespace AS home ON home.oid OPERATOR(pg_catalog.=) family.opfnamespace
JOIN pg_catalog.pg_type AS type ON type.oid OPERATOR(pg_catalog.=) class.opcintype
JOIN pg_catalog.pg_namespace AS typehome ON typehome.oid OPERATOR(pg_catalog.=) type.typnamespace
WHERE method.amname OPERATOR(pg_catalog.=) 'btree' AND class.opcdefault;
