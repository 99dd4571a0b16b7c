-- name: SamplesLock :one
-- Between copies: the copy that holds it until the end of its transaction may add a sample.
SELECT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended('"sexton".samples', 0));

-- name: SamplesFresh :one
-- Whether a sample was taken within the last so many seconds.
SELECT EXISTS (
    SELECT FROM "sexton".samples AS sample
    WHERE sample.taken_at > pg_catalog.statement_timestamp() - pg_catalog.make_interval(secs => @seconds::pg_catalog.float8)
);

-- name: SamplesAdd :execrows
INSERT INTO "sexton".samples (taken_at, database, deletion_table, pending, capped, deferred, oldest_age_seconds, coarse)
SELECT
    pg_catalog.statement_timestamp(),
    fresh.database,
    fresh.deletion_table,
    fresh.pending,
    fresh.capped,
    fresh.deferred,
    fresh.oldest_age_seconds,
    NOT EXISTS (
        SELECT FROM "sexton".samples AS earlier
        WHERE earlier.taken_at >= pg_catalog.date_bin('5 minutes', pg_catalog.statement_timestamp(), 'epoch')
          AND earlier.database = fresh.database
          AND earlier.deletion_table = fresh.deletion_table
    )
FROM (
    SELECT
        pg_catalog.unnest(@databases::pg_catalog.text[]) AS database,
        pg_catalog.unnest(@deletion_tables::pg_catalog.text[]) AS deletion_table,
        pg_catalog.unnest(@pending::bigint[]) AS pending,
        pg_catalog.unnest(@capped::boolean[]) AS capped,
        pg_catalog.unnest(@deferred::bigint[]) AS deferred,
        pg_catalog.unnest(@oldest_ages::pg_catalog.float8[]) AS oldest_age_seconds
) AS fresh;

-- name: SamplesPrune :execrows
-- Each arm is bounded. What one leaves the next sample's removal takes.
DELETE FROM "sexton".samples AS gone
USING (
    (
        SELECT fine.taken_at, fine.database, fine.deletion_table
        FROM "sexton".samples AS fine
        WHERE NOT fine.coarse AND fine.taken_at < pg_catalog.statement_timestamp() - interval '1 day'
        ORDER BY fine.taken_at
        LIMIT 1000
    )
    UNION
    (
        SELECT old.taken_at, old.database, old.deletion_table
        FROM "sexton".samples AS old
        WHERE old.taken_at < pg_catalog.statement_timestamp() - interval '7 days'
        ORDER BY old.taken_at
        LIMIT 1000
    )
) AS past
WHERE gone.taken_at = past.taken_at
  AND gone.database = past.database
  AND gone.deletion_table = past.deletion_table;

-- name: SamplesSince :many
-- The highest of each bin, so that no peak is lost in a long stretch. Times are in seconds of the epoch.
SELECT
    sample.database,
    sample.deletion_table,
    extract(epoch FROM pg_catalog.date_bin(pg_catalog.make_interval(secs => @bin_seconds::pg_catalog.float8), sample.taken_at, 'epoch'))::bigint AS at_epoch,
    pg_catalog.max(sample.pending)::bigint AS pending,
    pg_catalog.max(sample.oldest_age_seconds)::pg_catalog.float8 AS oldest_age_seconds
FROM "sexton".samples AS sample
WHERE sample.taken_at > pg_catalog.statement_timestamp() - pg_catalog.make_interval(secs => @seconds::pg_catalog.float8)
GROUP BY sample.database, sample.deletion_table, at_epoch
ORDER BY sample.deletion_table, sample.database, at_epoch;
