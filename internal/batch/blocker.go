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

// program is the name that a holder's session gives itself, or its user.
const program = `coalesce(
        ' (' || CASE WHEN holder.application_name <> '' THEN holder.application_name
            ELSE holder.usename::pg_catalog.text END || ')', '')`

// The session is found by the name that begin_batch gave it: behind a transaction pooler
// the process id that its connection knows is not the server's. Of several holders the
// one with the oldest transaction is named. A prepared transaction has the process id 0
// and no row in pg_stat_activity, and the time is null where the role may not see it.
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
    ), ''),
    coalesce((SELECT held.virtualtransaction FROM pg_catalog.pg_locks AS held WHERE held.pid = blocker.pid LIMIT 1), '')
FROM pg_catalog.pg_stat_activity AS waiting
CROSS JOIN LATERAL pg_catalog.unnest(pg_catalog.pg_blocking_pids(waiting.pid)) AS blocker (pid)
LEFT JOIN pg_catalog.pg_stat_activity AS holder ON holder.pid = blocker.pid
WHERE waiting.datname = pg_catalog.current_database()
  AND waiting.wait_event_type = 'Lock'
  AND waiting.application_name = pg_catalog.concat("sexton".session_name($1), '#', $2::bigint)
ORDER BY holder.xact_start NULLS LAST, blocker.pid
LIMIT 1`

// askTimeout bounds the question who blocks a transaction: it must not hold up the pass.
const askTimeout = time.Second

// Blocker asks on a connection of the pool whom the session's running transaction waits
// for. Unlike the other methods it may be called while a transaction runs.
func (s *Session) Blocker(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	found, err := Blocker(ctx, pool, s.Names, s.Fence.Key(), s.Fence.Token())
	if found.Text != "" {
		s.seen.Store(&found)
	}
	return found.Text, err
}

// Blocker asks whom the running transaction of a session waits for, which has the name
// that session_name gives the key, and the token behind it: "row locked by pid 4711
// (psql) since 14:02:03Z", in UTC. It is "" where the transaction waits for no other. It
// waits for a connection until ctx ends; a question that is on its way then is not broken
// off, which would cost its connection.
func Blocker(ctx context.Context, pool *pgxpool.Pool, names pgcatalog.Names, key string,
	token int64,
) (found Obstacle, _ error) {
	on, err := pool.Acquire(ctx)
	if err != nil {
		return found, fmt.Errorf("look who blocks %s: %w", key, err)
	}
	defer on.Release()
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	err = database.Pinned(asking, on, names.Render(blockerSQL), key, token).Scan(&found.Text, &found.Transaction)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return found, fmt.Errorf("look who blocks %s: %w", key, err)
	}
	return found, nil
}

// holderSQL finds the session that holds the advisory lock on the hash of a name. Any
// role may take one.
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

// Holder returns who holds the advisory lock on the hash of a name, as Blocker words it,
// or "".
func Holder(ctx context.Context, tx pgx.Tx, name string) (holder string, err error) {
	if err = tx.QueryRow(ctx, holderSQL, name).Scan(&holder); errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return holder, problem.Doing(err, "look who holds the lock of %s", name)
}

// Obstacle is a transaction that was in the way of another one.
type Obstacle struct {
	// Text names it to people, as Blocker does. Table is the one that it has locked as a
	// whole, 0 where that is not known.
	Text  string
	Table uint32
	// Transaction is its virtual transaction, which no later one has; "" where it cannot
	// be told.
	Transaction string
}

// Seen returns what Blocker has found since Seen was called last, for one goroutine.
func (s *Session) Seen() Obstacle {
	if seen := s.seen.Swap(nil); seen != nil {
		return *seen
	}
	return Obstacle{}
}

// tableLocksSQL finds sessions that hold, or wait for, a lock on one of some tables
// beside which none of its rows can be changed.
const tableLocksSQL = `
SELECT held.relation,
    'table ' || (SELECT class.relname FROM pg_catalog.pg_class AS class WHERE class.oid = held.relation)::pg_catalog.text || ' locked by '
        || coalesce('pid ' || held.pid::pg_catalog.text, 'a prepared transaction')
        || ` + program + `
        || coalesce(' since ' || pg_catalog.to_char(holder.xact_start AT TIME ZONE 'UTC', 'HH24:MI:SS"Z"'), ''),
    coalesce(held.virtualtransaction, '')
FROM pg_catalog.pg_locks AS held
LEFT JOIN pg_catalog.pg_stat_activity AS holder ON holder.pid = held.pid
WHERE held.locktype = 'relation'
  AND held.database = (
      SELECT own.oid FROM pg_catalog.pg_database AS own WHERE own.datname = pg_catalog.current_database())
  AND held.relation = ANY ($1::pg_catalog.oid[])
  AND held.mode = ANY ('{ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}'::pg_catalog.text[])
  AND coalesce(held.pid, 0) <> pg_catalog.pg_backend_pid()
ORDER BY held.granted DESC`

// TableLocks returns who has locked some of the tables as a whole.
func (s *Session) TableLocks(ctx context.Context, tables []uint32) (found []Obstacle, err error) {
	_, err = s.RunOwn(ctx, Statement{
		SQL: tableLocksSQL, Args: []any{tables},
		Scan: Collect(&found, func(row pgx.CollectableRow) (o Obstacle, err error) {
			err = row.Scan(&o.Table, &o.Text, &o.Transaction)
			return o, err
		}),
	})
	return found, err
}

// Over reports whether a transaction that was seen has ended: each holds a lock on
// itself.
func (s *Session) Over(ctx context.Context, transaction string) (over bool, err error) {
	const sql = `SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_locks AS held WHERE held.virtualtransaction = $1)`
	_, err = s.RunOwn(ctx, Statement{SQL: sql, Args: []any{transaction}, Scan: One(&over)})
	return over, err
}
