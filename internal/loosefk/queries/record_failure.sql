-- Records the error $4 of the unfinished tombstones ($2, $3) of parent $1. It returns the
-- number of deferred tombstones and the number of all that still exist. If $6 is not
-- null, the tombstones are deferred by $6 seconds without an attempt. Otherwise they get
-- an attempt. From the third attempt on, a tombstone is deferred by 5 minutes, and twice
-- as long after each further attempt, up to an hour. If the tombstone only exceeded the
-- limits of the run ($5), it is deferred by 5 minutes and its attempts begin at 0 again,
-- as in GitLab. A tombstone that was marked for a recheck (status 2) becomes an ordinary
-- one (status 1).
WITH recorded AS (
    UPDATE "public".loose_foreign_keys_deleted_records AS tombstone
    SET last_error = CASE WHEN $6::pg_catalog.float8 IS NOT NULL AND tombstone.cleanup_attempts > 0
            THEN tombstone.last_error ELSE $4 END,
        status = 1,
        cleanup_attempts = CASE
            WHEN $6::pg_catalog.float8 IS NOT NULL THEN tombstone.cleanup_attempts
            WHEN $5::boolean AND tombstone.cleanup_attempts >= 2 THEN 0
            ELSE least(tombstone.cleanup_attempts + 1, 32767)
        END,
        consume_after = CASE
            WHEN $6::pg_catalog.float8 IS NOT NULL
                THEN pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $6::pg_catalog.float8)
            WHEN tombstone.cleanup_attempts < 2
                THEN CASE WHEN tombstone.status = 2 THEN pg_catalog.clock_timestamp() ELSE tombstone.consume_after END
            WHEN $5::boolean THEN pg_catalog.clock_timestamp() + interval '5 minutes'
            ELSE pg_catalog.clock_timestamp()
                + least(
                    interval '5 minutes' * pg_catalog.power(2, least(tombstone.cleanup_attempts - 2, 10)),
                    interval '1 hour')
        END
    WHERE tombstone.ctid = ANY (ARRAY(
        SELECT found.ctid
        FROM ROWS FROM (pg_catalog.unnest($2::bigint[]), pg_catalog.unnest($3::pg_catalog.timestamptz[])) AS unfinished (id, consume_after)
        CROSS JOIN LATERAL (
            SELECT pending.ctid
            FROM "public".loose_foreign_keys_deleted_records AS pending
            WHERE pending.fully_qualified_table_name = $1
              AND pending.consume_after = unfinished.consume_after
              AND pending.id = unfinished.id
              AND pending.status = ANY ('{1,2}'::smallint[])
            OFFSET 0
        ) AS found
    ))
    RETURNING tombstone.consume_after
)
SELECT pg_catalog.count(*) FILTER (WHERE $6::pg_catalog.float8 IS NOT NULL OR recorded.consume_after > pg_catalog.clock_timestamp())
    AS deferred, pg_catalog.count(*) AS recorded
FROM recorded
