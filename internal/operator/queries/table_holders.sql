-- Says which session, other than workers, holds locks on rows of the table $1, or on the table as a whole; of several the one with the oldest
-- transaction. The name is that of a recorded error: with its schema or without, of a partition or of the whole table.
SELECT coalesce(
    (
        SELECT coalesce('pid ' || held.pid, 'a prepared transaction')
            || coalesce(' (' || coalesce(nullif(session.application_name, ''), session.usename::pg_catalog.text) || ')', '')
            || ' holds locks on ' || $1::pg_catalog.text
            || coalesce(' since ' || pg_catalog.to_char(session.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), '')
        FROM pg_catalog.pg_locks AS held
        CROSS JOIN LATERAL (
            SELECT held.relation AS oid UNION SELECT ancestor.relid FROM pg_catalog.pg_partition_ancestors(held.relation) AS ancestor (relid)
        ) AS locked
        JOIN pg_catalog.pg_class AS class ON class.oid = locked.oid
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
        LEFT JOIN pg_catalog.pg_stat_activity AS session ON session.pid = held.pid
        WHERE held.locktype = 'relation'
          AND held.granted
          AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
          AND held.mode = ANY ('{RowShareLock,RowExclusiveLock,ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}'::pg_catalog.text[])
          AND $1 IN (class.relname::pg_catalog.text, namespace.nspname || '.' || class.relname)
          AND NOT pg_catalog.starts_with(coalesce(session.application_name, ''), 'sexton')
        ORDER BY session.xact_start NULLS LAST, held.pid
        LIMIT 1
    ),
    'no session holds a lock on ' || $1
)
