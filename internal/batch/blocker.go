package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/database"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// program is an SQL expression for the application_name of the lock holder, or its user.
const program = `coalesce(
        ' (' || CASE WHEN holder.application_name <> '' THEN holder.application_name
            ELSE holder.usename::pg_catalog.text END || ')', '')`

// blockerSQL finds the waiting session by the application_name that begin_batch has set.
// Through a transaction pooler, the process ID that the connection knows is not that of
// the server session. If there are several holders, the query returns the holder with the
// oldest transaction. A prepared transaction has the process ID 0 and no row in
// pg_stat_activity. The time is null if the role may not see it.
const blockerSQL = `
SELECT CASE
        WHEN waiting.wait_event = ANY ('{transactionid,tuple}') THEN 'row locked'
        WHEN waiting.wait_event = 'relation' THEN 'table locked'
        ELSE 'lock held'
    END || ' by '
    || CASE WHEN blocker.pid = 0 THEN 'a prepared transaction'
        ELSE 'pid ' || blocker.pid::pg_catalog.text END
    || ` + program + `
    || coalesce(' since ' || pg_catalog.to_char(
        holder.xact_start AT TIME ZONE 'UTC',
        CASE WHEN holder.xact_start > (pg_catalog.now() - interval '12 hours')
            THEN 'HH24:MI:SS"Z"' ELSE 'YYYY-MM-DD"T"HH24:MI:SS"Z"' END
    ), '')
FROM pg_catalog.pg_stat_activity AS waiting
CROSS JOIN LATERAL pg_catalog.unnest(pg_catalog.pg_blocking_pids(waiting.pid)) AS blocker (pid)
LEFT JOIN pg_catalog.pg_stat_activity AS holder ON holder.pid = blocker.pid
WHERE waiting.datname = pg_catalog.current_database()
  AND waiting.wait_event_type = 'Lock'
  AND waiting.application_name = pg_catalog.concat("sexton".session_name($1), '#', $2::bigint)
ORDER BY holder.xact_start NULLS LAST, blocker.pid
LIMIT 1`

// blockerTimeout limits the query for the blocker, which must not delay the pass.
const blockerTimeout = time.Second

// Blocker returns the session that holds the lock which the session's running transaction
// waits for. It uses a connection of the pool. Unlike the other methods it may be called
// while a transaction is running.
func (s *Session) Blocker(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	return Blocker(ctx, pool, s.Names, s.Fence.Key(), s.Fence.Token())
}

// Blocker returns the session that holds the lock which a running transaction waits for,
// such as "row locked by pid 4711 (psql) since 14:02:03Z", in UTC. It returns "" if the
// transaction does not wait. The transaction is identified by the lease's key and token,
// which are in its application_name. Blocker waits for a connection until ctx ends. A
// query that has begun is not canceled then, since that would close its connection.
func Blocker(ctx context.Context, pool *pgxpool.Pool, names pgcatalog.Names, key string,
	token int64,
) (blocker string, _ error) {
	on, err := pool.Acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("query the blocker of %s: %w", key, err)
	}
	defer on.Release()
	querying, cancel := context.WithTimeout(context.WithoutCancel(ctx), blockerTimeout)
	defer cancel()
	err = database.Pinned(querying, on, names.Render(blockerSQL), key, token).Scan(&blocker)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("query the blocker of %s: %w", key, err)
	}
	return blocker, nil
}

// holderSQL finds the session that holds the advisory lock on the hash of a name. The
// session can be of any role.
const holderSQL = `
SELECT pg_catalog.concat('lock held by ', coalesce('pid ' || held.pid::pg_catalog.text, 'a prepared transaction'), ` + program + `)
FROM pg_catalog.pg_locks AS held
LEFT JOIN pg_catalog.pg_stat_activity AS holder ON holder.pid = held.pid
WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
  AND held.database = (
      SELECT own.oid FROM pg_catalog.pg_database AS own WHERE own.datname = pg_catalog.current_database())
  AND (held.classid::bigint << 32) | held.objid::bigint
      = pg_catalog.hashtextextended($1, 0)
LIMIT 1`

// Holder returns the session that holds the advisory lock on the hash of a name, in the
// form of Blocker, or "".
func Holder(ctx context.Context, tx pgx.Tx, name string) (holder string, err error) {
	if err = tx.QueryRow(ctx, holderSQL, name).Scan(&holder); errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return holder, problem.Doing(err, "query the holder of lock %s", name)
}

// tableLockSQL finds a session that holds, or waits for, a table lock which conflicts
// with any change of rows.
const tableLockSQL = `
SELECT 'table ' || (SELECT class.relname FROM pg_catalog.pg_class AS class WHERE class.oid = held.relation)::pg_catalog.text || ' locked by '
        || coalesce('pid ' || held.pid::pg_catalog.text, 'a prepared transaction')
        || ` + program + `
        || coalesce(' since ' || pg_catalog.to_char(holder.xact_start AT TIME ZONE 'UTC', 'HH24:MI:SS"Z"'), '')
FROM pg_catalog.pg_locks AS held
LEFT JOIN pg_catalog.pg_stat_activity AS holder ON holder.pid = held.pid
WHERE held.locktype = 'relation'
  AND held.database = (
      SELECT own.oid FROM pg_catalog.pg_database AS own WHERE own.datname = pg_catalog.current_database())
  AND held.relation = ANY ($1::pg_catalog.oid[])
  AND held.mode = ANY ('{ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}'::pg_catalog.text[])
  AND coalesce(held.pid, 0) <> pg_catalog.pg_backend_pid()
ORDER BY held.granted DESC
LIMIT 1`

// TableLock returns the session that holds or waits for a lock on one of the tables that
// conflicts with any change of rows. It returns "" if there is none.
func (s *Session) TableLock(ctx context.Context, tables []uint32) (holder string, err error) {
	_, err = s.RunOwn(ctx, Statement{SQL: tableLockSQL, Args: []any{tables}, Scan: One(&holder)})
	return holder, err
}
