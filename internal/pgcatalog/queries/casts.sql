SELECT pg_catalog.format('%I.%I', fromhome.nspname, source.typname), pg_catalog.format('%I.%I', tohome.nspname, target.typname),
    change.castmethod OPERATOR(pg_catalog.=) 'b', function.oid IS NULL OR function.provolatile OPERATOR(pg_catalog.=) 'i', target.typispreferred
FROM pg_catalog.pg_cast AS change
JOIN pg_catalog.pg_type AS source ON source.oid OPERATOR(pg_catalog.=) change.castsource
JOIN pg_catalog.pg_namespace AS fromhome ON fromhome.oid OPERATOR(pg_catalog.=) source.typnamespace
JOIN pg_catalog.pg_type AS target ON target.oid OPERATOR(pg_catalog.=) change.casttarget
JOIN pg_catalog.pg_namespace AS tohome ON tohome.oid OPERATOR(pg_catalog.=) target.typnamespace
LEFT JOIN pg_catalog.pg_proc AS function ON function.oid OPERATOR(pg_catalog.=) change.castfunc
WHERE change.castcontext OPERATOR(pg_catalog.=) 'i';
