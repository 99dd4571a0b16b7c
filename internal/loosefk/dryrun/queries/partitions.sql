SELECT inherits.inhparent, inherits.inhrelid
FROM pg_catalog.pg_inherits AS inherits
JOIN pg_catalog.pg_class AS class ON class.oid = inherits.inhrelid
WHERE class.relispartition AND NOT inherits.inhdetachpending
ORDER BY class.relname, class.oid
