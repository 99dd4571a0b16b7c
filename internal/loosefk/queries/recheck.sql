-- Turns the keys of removed tombstones of database $1 into marked tombstones (status 2),
-- at most about 5,000, and returns their number.
--
-- A transaction that began before a tombstone was removed may still insert a child. So a
-- key is rechecked $2 seconds after the removal, if no such transaction is open here or
-- in the databases of the parent's children ($5, by parent), and after 24 hours in any
-- case. A session whose transaction the role cannot see counts as a transaction that has
-- always been open. For a prepared transaction only the time of PREPARE is known. It
-- counts as if it had begun $2 seconds before PREPARE, but at least 10 minutes.
--
-- A parent is identified by the name in its tombstones ($3) or by its table ($4), which
-- may have been renamed since.
WITH open AS MATERIALIZED (
    SELECT coalesce(pg_catalog.min(one.began), 'infinity') AS began
    FROM (
        SELECT coalesce(session.xact_start, '-infinity') AS began
        FROM pg_catalog.pg_stat_activity AS session
        WHERE session.datname = pg_catalog.current_database()
          AND session.pid <> pg_catalog.pg_backend_pid()
          AND coalesce(session.backend_type, '') <> ALL ('{walsender,autovacuum worker}')
          AND (session.xact_start IS NOT NULL OR session.backend_xid IS NOT NULL OR session.backend_xmin IS NOT NULL
              OR session.state = 'disabled')
        UNION ALL
        SELECT prepared.prepared - greatest(pg_catalog.make_interval(secs => $2::pg_catalog.float8), interval '10 minutes')
        FROM pg_catalog.pg_prepared_xacts AS prepared
        WHERE prepared.database = pg_catalog.current_database()
    ) AS one
), ready AS MATERIALIZED (
    SELECT chosen.id, chosen.name
    FROM (
        SELECT removed.id, known.name,
            pg_catalog.sum(pg_catalog.cardinality(coalesce(removed.integer_keys::pg_catalog.text[], removed.text_keys))) OVER (ORDER BY removed.id) AS keys,
            pg_catalog.row_number() OVER (ORDER BY removed.id) AS place
        FROM "sexton".swept AS removed
        CROSS JOIN open
        CROSS JOIN LATERAL (
            SELECT parent.name, parent.horizon
            FROM ROWS FROM (pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::pg_catalog.oid[]), pg_catalog.unnest($5::pg_catalog.timestamptz[]))
                AS parent (name, oid, horizon)
            WHERE parent.name = removed.parent OR parent.oid = removed.parent_oid
            ORDER BY parent.name = removed.parent DESC
            LIMIT 1
        ) AS known
        WHERE removed.database = $1
          AND removed.swept_at < (pg_catalog.clock_timestamp()
              - pg_catalog.make_interval(secs => $2::pg_catalog.float8))
          AND (removed.swept_at < least(open.began, known.horizon)
              OR removed.swept_at < (pg_catalog.clock_timestamp() - interval '24 hours'))
        ORDER BY removed.id
        LIMIT 1000
    ) AS chosen
    WHERE chosen.place = 1 OR chosen.keys <= 5000
), taken AS (
    DELETE FROM "sexton".swept AS removed
    USING ready
    WHERE removed.database = $1 AND removed.id = ready.id
    RETURNING ready.name, removed.integer_keys, removed.text_keys, {origins} AS origins
), marked AS (
    INSERT INTO "public".loose_foreign_keys_deleted_records ({columns})
    SELECT {values}
    FROM taken
    CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(taken.integer_keys), pg_catalog.unnest(taken.text_keys), pg_catalog.unnest(taken.origins))
        AS key (integer_key, text_key, origin)
    RETURNING 1
)
SELECT pg_catalog.count(*) FROM marked
