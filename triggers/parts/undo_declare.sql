-- origin is the id of the set of kept rows, which tombstones record. It is NULL if no
-- rows are kept.
    origin pg_catalog.int8;
    by_batch pg_catalog.bool;
    command pg_catalog.text;
    layout pg_catalog.int8;
    own pg_catalog.bool := false;
    kept pg_catalog.record;
    one pg_catalog.record;
    apart pg_catalog.text := 'true';
