-- name: SamplesLock :exec
-- Tries to lock sampling until the end of the transaction, so that only one replica at a
-- time adds samples. Later statements read the result from the setting sexton.sampling.
SELECT pg_catalog.set_config(
    'sexton.sampling',
    pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended('"sexton".samples', 0))::pg_catalog.text,
    true
);

-- name: SamplesBacklog :many
SELECT own.deletion_table, own.pending, own.capped, own.deferred, own.oldest_age_seconds
FROM "sexton".backlog AS own
WHERE own.deletion_table = ANY (@deletion_tables::pg_catalog.text[])
   OR own.pending > 0;

-- name: SamplesAdd :exec
-- Does nothing if another replica samples, or there is a sample from the last seconds.
INSERT INTO "sexton".samples (taken_at, database, deletion_table, pending, capped, deferred, oldest_age_seconds, coarse, finished)
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
    ),
    (
        SELECT coalesce(pg_catalog.sum(done.items::bigint), 0)
        FROM ROWS FROM (pg_catalog.unnest(@kinds::pg_catalog.text[]), pg_catalog.unnest(@kind_tables::pg_catalog.text[])) AS kind (name, deletion_table)
        CROSS JOIN LATERAL (
            SELECT run.stats
            FROM "sexton".runs AS run
            WHERE (run.kind, run.database) >= (kind.name, fresh.database)
              AND (run.kind, run.database) <= (kind.name, fresh.database)
              AND run.started_at > pg_catalog.statement_timestamp() - interval '5 minutes'
              AND run.ended_at <= pg_catalog.statement_timestamp()
              AND run.ended_at > coalesce(
                  (SELECT pg_catalog.max(before.taken_at) FROM "sexton".samples AS before),
                  pg_catalog.statement_timestamp() - pg_catalog.make_interval(secs => @seconds::pg_catalog.float8))
            ORDER BY run.kind, run.database, run.started_at DESC, run.id DESC
            LIMIT 5000
        ) AS run
        CROSS JOIN LATERAL pg_catalog.jsonb_each_text(run.stats::pg_catalog.jsonb -> 'latency_seconds'::pg_catalog.text) AS done (bin, items)
        WHERE kind.deletion_table = fresh.deletion_table
    )
FROM (
    SELECT @database::pg_catalog.text AS database, own.deletion_table, own.pending, own.capped, own.deferred, own.oldest_age_seconds
    FROM "sexton".backlog AS own
    WHERE own.deletion_table = ANY (@own_tables::pg_catalog.text[])
       OR own.pending > 0
    UNION ALL
    SELECT
        pg_catalog.unnest(@databases::pg_catalog.text[]),
        pg_catalog.unnest(@deletion_tables::pg_catalog.text[]),
        pg_catalog.unnest(@pending::bigint[]),
        pg_catalog.unnest(@capped::boolean[]),
        pg_catalog.unnest(@deferred::bigint[]),
        pg_catalog.unnest(@oldest_ages::pg_catalog.float8[])
) AS fresh
WHERE pg_catalog.current_setting('sexton.sampling', true) = 'true'
  AND NOT EXISTS (
      SELECT FROM "sexton".samples AS sample
      WHERE sample.taken_at > pg_catalog.statement_timestamp() - pg_catalog.make_interval(secs => @seconds::pg_catalog.float8)
  );

-- name: SamplesPrune :exec
-- Deletes a limited number of expired samples. The call after the next sample deletes
-- more.
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
WHERE pg_catalog.current_setting('sexton.sampling', true) = 'true'
  AND gone.taken_at = past.taken_at
  AND gone.database = past.database
  AND gone.deletion_table = past.deletion_table;

-- name: SamplesSince :many
-- Returns the maximum of each bin, so that no peak is lost, and the sum of finished rows.
-- Times are Unix times.
SELECT
    sample.database,
    sample.deletion_table,
    extract(epoch FROM pg_catalog.date_bin(pg_catalog.make_interval(secs => @bin_seconds::pg_catalog.float8), sample.taken_at, 'epoch'))::bigint AS at_epoch,
    pg_catalog.max(sample.pending)::bigint AS pending,
    pg_catalog.max(sample.oldest_age_seconds)::pg_catalog.float8 AS oldest_age_seconds,
    pg_catalog.sum(sample.finished)::bigint AS finished
FROM "sexton".samples AS sample
WHERE sample.taken_at > pg_catalog.statement_timestamp() - pg_catalog.make_interval(secs => @seconds::pg_catalog.float8)
GROUP BY sample.database, sample.deletion_table, at_epoch
ORDER BY sample.deletion_table, sample.database, at_epoch;
