-- A marked tombstone (status 2) becomes an ordinary one, so that it is tried again as others are.
-- Records why tombstones ($2, $3) of parent $1 are unfinished ($4), and returns how many it has put off and how many there were. With $6 they
-- wait so many seconds for a database that cannot be reached, which is no attempt. Else an attempt counts: after the third a tombstone is put off,
-- one that fails for 5 minutes, doubling up to an hour; one that is merely too big for the limits ($5) for 5 minutes, from where it starts afresh,
-- as in GitLab.
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
    AS put_off, pg_catalog.count(*) AS recorded
FROM recorded
