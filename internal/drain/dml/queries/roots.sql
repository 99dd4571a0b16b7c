-- Returns the top partitioned table of each relation, or the relation itself if it is not a partition.
SELECT class.oid, CASE WHEN class.relispartition THEN coalesce(pg_catalog.pg_partition_root(class.oid)::pg_catalog.oid, class.oid) ELSE class.oid END
FROM pg_catalog.pg_class AS class
WHERE class.oid = ANY ($1)
