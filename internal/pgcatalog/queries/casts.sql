-- Returns the implicit casts of the database.
SELECT pg_catalog.format('%s.%I', source.typnamespace::pg_catalog.regnamespace, source.typname),
    pg_catalog.format('%s.%I', target.typnamespace::pg_catalog.regnamespace, target.typname),
    change.castmethod = 'b', function.oid IS NULL OR function.provolatile = 'i', target.typispreferred
FROM pg_catalog.pg_cast AS change
JOIN pg_catalog.pg_type AS source ON source.oid = change.castsource
JOIN pg_catalog.pg_type AS target ON target.oid = change.casttarget
LEFT JOIN pg_catalog.pg_proc AS function ON function.oid = change.castfunc
WHERE change.castcontext = 'i';
