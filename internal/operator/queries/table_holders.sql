-- Says which session is in the way of others at the table $1, in the words of a recorded error: with its schema
-- unless that is public, a partition or the whole table. Best is a session that another one waits for, then one that
-- locks the whole table against writers; of others nothing is known except that they write. Workers at a batch of
-- theirs are left out: what follows "#" in the name of their sessions is the lease's token.
WITH locks AS MATERIALIZED (
    SELECT held.pid, held.locktype, held.database, held.relation, held.mode, held.granted FROM pg_catalog.pg_locks AS held
), near AS MATERIALIZED (
    SELECT lock.pid, lock.mode, lock.granted, EXISTS (SELECT FROM locks AS wanted WHERE wanted.pid = lock.pid AND NOT wanted.granted) AS waits
    FROM locks AS lock
    CROSS JOIN LATERAL (
        SELECT lock.relation AS oid UNION SELECT ancestor.relid FROM pg_catalog.pg_partition_ancestors(lock.relation) AS ancestor (relid)
    ) AS locked
    JOIN pg_catalog.pg_class AS class ON class.oid = locked.oid
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
    WHERE lock.locktype = 'relation'
      AND lock.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
      AND lock.mode = ANY ('{RowShareLock,RowExclusiveLock,ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}'::pg_catalog.text[])
      AND $1::pg_catalog.text IN (
          pg_catalog.concat(namespace.nspname, '.', class.relname), CASE WHEN namespace.nspname = 'public' THEN class.relname::pg_catalog.text END
      )
), waited AS MATERIALIZED (
    SELECT pg_catalog.unnest(pg_catalog.pg_blocking_pids(waiting.pid)) AS pid FROM (SELECT DISTINCT near.pid FROM near WHERE near.waits LIMIT 20) AS waiting
), holder AS (
    SELECT
        near.pid, near.waits, session.usename, session.application_name, session.xact_start,
        -- A prepared transaction has no process, and blocks as process 0.
        EXISTS (SELECT FROM waited WHERE waited.pid = coalesce(near.pid, 0)) AS blocks,
        near.mode <> ALL ('{RowShareLock,RowExclusiveLock}'::pg_catalog.text[]) AS whole
    FROM near
    LEFT JOIN pg_catalog.pg_stat_activity AS session ON session.pid = near.pid
    WHERE near.granted
      AND coalesce(session.application_name, '') !~ '^sexton .*#[0-9]+$'
)
SELECT coalesce(
    (
        SELECT pg_catalog.concat(
            CASE WHEN holder.pid IS NULL THEN 'a prepared transaction' ELSE pg_catalog.concat('pid ', holder.pid) END,
            ' (' OPERATOR(pg_catalog.||) coalesce(nullif(holder.application_name, ''), holder.usename::pg_catalog.text) OPERATOR(pg_catalog.||) ')',
            CASE WHEN holder.blocks OR holder.whole THEN ' holds locks on ' ELSE ' is the oldest session that writes to ' END,
            $1,
            ' since ' OPERATOR(pg_catalog.||) pg_catalog.to_char(holder.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
        )
        FROM holder
        ORDER BY holder.blocks DESC, holder.whole DESC, holder.waits, holder.xact_start, holder.pid
        LIMIT 1
    ),
    pg_catalog.concat('no session holds a lock on ', $1)
)
