-- name: SamplesLock :one
-- Between copies: whoever holds it until the end of its transaction may add a sample.
SELECT pg_try_advisory_xact_lock(hashtextextended('"sexton".samples', 0));

-- name: SamplesFresh :one
-- Whether a sample was taken within the last so many seconds.
SELECT EXISTS (
    SELECT FROM "sexton".samples AS sample
    WHERE sample.taken_at > statement_timestamp() - make_interval(secs => @seconds::float8)
);

-- name: SamplesAdd :execrows
INSERT INTO "sexton".samples (taken_at, database, deletion_table, pending, capped, deferred, oldest_age_seconds, coarse)
SELECT
    statement_timestamp(),
    fresh.database,
    fresh.deletion_table,
    fresh.pending,
    fresh.capped,
    fresh.deferred,
    fresh.oldest_age_seconds,
    NOT EXISTS (
        SELECT FROM "sexton".samples AS earlier
        WHERE earlier.taken_at >= date_bin('5 minutes', statement_timestamp(), 'epoch')
          AND earlier.database = fresh.database
          AND earlier.deletion_table = fresh.deletion_table
    )
FROM (
    SELECT
        unnest(@databases::text[]) AS database,
        unnest(@deletion_tables::text[]) AS deletion_table,
        unnest(@pending::bigint[]) AS pending,
        unnest(@capped::boolean[]) AS capped,
        unnest(@deferred::bigint[]) AS deferred,
        unnest(@oldest_ages::float8[]) AS oldest_age_seconds
) AS fresh;

-- name: SamplesPrune :execrows
-- Each arm is bounded. What one leaves the next sample's removal takes.
DELETE FROM "sexton".samples AS gone
USING (
    (
        SELECT fine.taken_at, fine.database, fine.deletion_table
        FROM "sexton".samples AS fine
        WHERE NOT fine.coarse AND fine.taken_at < statement_timestamp() - interval '1 day'
        ORDER BY fine.taken_at
        LIMIT 1000
    )
    UNION
    (
        SELECT old.taken_at, old.database, old.deletion_table
        FROM "sexton".samples AS old
        WHERE old.taken_at < statement_timestamp() - interval '7 days'
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
    extract(epoch FROM date_bin(make_interval(secs => @bin_seconds::float8), sample.taken_at, 'epoch'))::bigint AS at_epoch,
    max(sample.pending)::bigint AS pending,
    max(sample.oldest_age_seconds)::float8 AS oldest_age_seconds
FROM "sexton".samples AS sample
WHERE sample.taken_at > statement_timestamp() - make_interval(secs => @seconds::float8)
GROUP BY sample.database, sample.deletion_table, at_epoch
ORDER BY sample.deletion_table, sample.database, at_epoch;
