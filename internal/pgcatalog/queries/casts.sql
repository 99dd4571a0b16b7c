SELECT pg_catalog.format('%s.%I', source.typnamespace::pg_catalog.regnamespace, source.typname),
    pg_catalog.format('%s.%I', target.typnamespace::pg_catalog.regnamespace, target.typname),
    change.castmethod OPERATOR(pg_catalog.=) 'b', function.oid IS NULL OR function.provolatile OPERATOR(pg_catalog.=) 'i', target.typispreferred
FROM pg_catalog.pg_cast AS change
JOIN pg_catalog.pg_type AS source ON source.oid OPERATOR(pg_catalog.=) change.castsource
JOIN pg_catalog.pg_type AS target ON target.oid OPERATOR(pg_catalog.=) change.casttarget
LEFT JOIN pg_catalog.pg_proc AS function ON function.oid OPERATOR(pg_catalog.=) change.castfunc
WHERE change.castcontext OPERATOR(pg_catalog.=) 'i';
