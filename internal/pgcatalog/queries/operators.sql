-- Returns the comparison operators of btree families with the types of both sides.
SELECT pg_catalog.format('%s.%I', family.opfnamespace::pg_catalog.regnamespace, family.opfname),
    pg_catalog.format('%s.%I', lefttype.typnamespace::pg_catalog.regnamespace, lefttype.typname),
    pg_catalog.format('%s.%I', righttype.typnamespace::pg_catalog.regnamespace, righttype.typname), member.amopstrategy, operator.oid,
    pg_catalog.format('OPERATOR(%s.%s)', operator.oprnamespace::pg_catalog.regnamespace, operator.oprname),
    operator.oprnamespace::pg_catalog.regnamespace::pg_catalog.text, function.provolatile = 'i'
FROM pg_catalog.pg_amop AS member
JOIN pg_catalog.pg_opfamily AS family ON family.oid = member.amopfamily
JOIN pg_catalog.pg_type AS lefttype ON lefttype.oid = member.amoplefttype
JOIN pg_catalog.pg_type AS righttype ON righttype.oid = member.amoprighttype
JOIN pg_catalog.pg_operator AS operator ON operator.oid = member.amopopr
JOIN pg_catalog.pg_proc AS function ON function.oid = operator.oprcode
WHERE member.amopmethod = (SELECT method.oid FROM pg_catalog.pg_am AS method WHERE method.amname = 'btree')
AND member.amoppurpose = 's'
