-- Returns the backlog of loose foreign keys, see "sexton".backlog. Counts stop at 10,000.
-- The age is the age of the oldest among the first rows of the parents' queues, because
-- finding the oldest of all rows would read the complete backlog.
--
-- The function runs with its owner's privileges, so that a role without privileges on the
-- tombstones may read the backlog.
CREATE OR REPLACE FUNCTION "sexton".backlog_of_loose_foreign_keys()
RETURNS TABLE (
    deletion_table text,
    pending bigint,
    capped boolean,
    oldest_age_seconds double precision,
    deferred bigint,
    deferred_until timestamptz,
    deferred_reason text
)
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
    -- The recursion finds the parent tables with tombstones by one index probe per table,
    -- for any number of tombstones. statement_timestamp() is stable, so it can bound an
    -- index scan. clock_timestamp() is volatile, so it cannot.
    WITH RECURSIVE step AS (
        (
            SELECT first.fully_qualified_table_name AS name
            FROM "public".loose_foreign_keys_deleted_records AS first
            WHERE first.status = 1
            ORDER BY first.fully_qualified_table_name
            LIMIT 1
        )
        UNION ALL
        SELECT (
            SELECT next.fully_qualified_table_name
            FROM "public".loose_foreign_keys_deleted_records AS next
            WHERE next.status = 1 AND next.fully_qualified_table_name > step.name
            ORDER BY next.fully_qualified_table_name
            LIMIT 1
        )
        FROM step
        WHERE step.name IS NOT NULL
    ), parent AS MATERIALIZED (
        SELECT step.name FROM step WHERE step.name IS NOT NULL
    ), counts AS MATERIALIZED (
        -- The CTE is MATERIALIZED, because otherwise each use of a count would count
        -- again.
        SELECT
            (SELECT pg_catalog.count(*) FROM (
                SELECT FROM "public".loose_foreign_keys_deleted_records AS waiting WHERE waiting.status = 1 LIMIT 10001
            ) AS counted) AS pending,
            (SELECT pg_catalog.count(*) FROM (
                SELECT FROM parent
                CROSS JOIN LATERAL (
                    SELECT FROM "public".loose_foreign_keys_deleted_records AS deferred
                    WHERE deferred.status = 1
                      AND deferred.fully_qualified_table_name = parent.name
                      AND deferred.consume_after > pg_catalog.statement_timestamp()
                    LIMIT 10001
                ) AS one
                LIMIT 10001
            ) AS counted) AS deferred
    )
    SELECT
        'loose_foreign_keys_deleted_records',
        least(counts.pending, 10000),
        counts.pending > 10000,
        coalesce((
            SELECT greatest(extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.min(head.created_at)), 0)
            FROM parent
            CROSS JOIN LATERAL (
                SELECT oldest.created_at
                FROM "public".loose_foreign_keys_deleted_records AS oldest
                WHERE oldest.status = 1 AND oldest.fully_qualified_table_name = parent.name
                ORDER BY oldest.consume_after, oldest.id
                LIMIT 1
            ) AS head
        ), 0)::double precision,
        counts.deferred,
        (
            SELECT pg_catalog.min(first.at)
            FROM parent
            CROSS JOIN LATERAL (
                SELECT pg_catalog.min(deferred.consume_after) AS at
                FROM "public".loose_foreign_keys_deleted_records AS deferred
                WHERE deferred.status = 1
                  AND deferred.fully_qualified_table_name = parent.name
                  AND deferred.consume_after > pg_catalog.statement_timestamp()
            ) AS first
        ),
        "sexton".reasons(
            read.errors || CASE WHEN counts.deferred > pg_catalog.cardinality(read.errors) THEN ARRAY['+']::pg_catalog.text[] ELSE '{}' END
        )
    FROM counts
    CROSS JOIN (
        SELECT ARRAY(
            SELECT first.last_error
            FROM parent
            CROSS JOIN LATERAL (
                SELECT deferred.last_error
                FROM "public".loose_foreign_keys_deleted_records AS deferred
                WHERE deferred.status = 1
                  AND deferred.fully_qualified_table_name = parent.name
                  AND deferred.consume_after > pg_catalog.statement_timestamp()
                ORDER BY deferred.consume_after
                LIMIT 500
            ) AS first
            LIMIT 1000
        )
        -- OFFSET 0 keeps the planner from inlining this subquery. Otherwise each use of
        -- read.errors would read the errors again.
        OFFSET 0
    ) AS read (errors);
$sexton$;

COMMENT ON FUNCTION "sexton".backlog_of_loose_foreign_keys() IS 'Sexton: deleted parents whose children are not cleaned up yet';
