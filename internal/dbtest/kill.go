package dbtest

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/pgtest"
)

// Victim simulates a process that is killed. From its nth message on, sent or received,
// each of its connections is closed on the client's side without a message to the server.
type Victim struct {
	db    *DB
	at    int64
	seen  atomic.Int64
	close []func()

	mu    sync.Mutex
	conns []*pgx.Conn
}

// KillAnywhere calls KillEvery with the given step, or with step 1 if Long is set.
func (d *DB) KillAnywhere(tb testing.TB, step int64, test func(v *Victim)) (kills int) {
	if pgtest.Long {
		step = 1
	}
	return d.KillEvery(tb, step, test)
}

// KillEvery calls test with a victim that dies at its first message, then with one that
// dies step messages later, and so on until a victim survives. It returns the number of
// victims that died. With an odd step, victims die alternately at a sent and at a
// received message.
func (d *DB) KillEvery(tb testing.TB, step int64, test func(v *Victim)) (kills int) {
	for at := int64(1); ; at += step {
		v := &Victim{db: d, at: at}
		test(v)
		for _, end := range v.close {
			end()
		}
		if !v.Killed() {
			return kills
		}
		tb.Logf("killed at message %d", at)
		kills++
	}
}

// KillAt runs work until it calls die, which closes the victim's connections and returns
// only at the end of the test. The test fails if work returns before it calls die.
func (d *DB) KillAt(tb testing.TB, work func(v *Victim, die func()) error) {
	v := &Victim{db: d, at: math.MaxInt64 / 2}
	died, testEnds, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { v.die(); close(died) })
	var err error
	go func() {
		defer close(ended)
		err = work(v, func() { once(); <-testEnds; runtime.Goexit() })
	}()
	tb.Cleanup(func() {
		close(testEnds)
		<-ended
		for _, end := range v.close {
			end()
		}
	})
	select {
	case <-died:
	case <-ended:
		require.Fail(tb, "the work ended before it was killed", "%v", err)
	}
}

// die closes all connections of the victim.
func (v *Victim) die() {
	v.seen.Store(v.at)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, conn := range v.conns {
		_ = conn.PgConn().Conn().Close()
	}
}

// Connect opens a connection of the victim.
func (v *Victim) Connect(tb testing.TB) *pgx.Conn {
	config := pgtest.Must(pgx.ParseConfig(v.db.URL))(tb)
	config.Tracer = v
	conn := pgtest.Must(pgx.ConnectConfig(tb.Context(), config))(tb)
	v.close = append(v.close, func() { _ = conn.Close(tb.Context()) })
	return conn
}

// Connected returns the database with a pool whose connections belong to the victim.
func (v *Victim) Connected(tb testing.TB) database.Database {
	config := pgtest.Must(pgxpool.ParseConfig(v.db.URL))(tb)
	config.ConnConfig.Tracer = v
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.conns = append(v.conns, conn)
		return nil
	}
	pool := pgtest.Must(pgxpool.NewWithConfig(tb.Context(), config))(tb)
	v.close = append(v.close, pool.Close)
	own := v.db.Connected
	own.Pool, own.Sessions = pool, pool
	return own
}

// Killed reports whether the victim has died.
func (v *Victim) Killed() bool { return v.seen.Load() >= v.at }

func (v *Victim) step(conn *pgx.Conn) {
	if v.seen.Add(1) >= v.at {
		_ = conn.PgConn().Conn().Close()
	}
}

// TraceQueryStart counts a message before a statement is sent.
func (v *Victim) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	v.step(conn)
	return ctx
}

// TraceQueryEnd counts a message after the result of a statement was read.
func (v *Victim) TraceQueryEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	v.step(conn)
}

// TraceBatchStart counts a message before several statements are sent together.
func (v *Victim) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	v.step(conn)
	return ctx
}

// TraceBatchQuery counts a message after the result of one statement of a batch was read.
func (v *Victim) TraceBatchQuery(_ context.Context, conn *pgx.Conn, _ pgx.TraceBatchQueryData) {
	v.step(conn)
}

// TraceBatchEnd counts a message after the results of all statements of a batch were
// read.
func (v *Victim) TraceBatchEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceBatchEndData) {
	v.step(conn)
}

// TracePrepareStart counts a message before a statement is prepared.
func (v *Victim) TracePrepareStart(ctx context.Context, conn *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	v.step(conn)
	return ctx
}

// TracePrepareEnd counts a message after a statement was prepared.
func (v *Victim) TracePrepareEnd(_ context.Context, conn *pgx.Conn, _ pgx.TracePrepareEndData) {
	v.step(conn)
}

// KillOnce returns a function that terminates the session of a connection on its first
// call.
func (d *DB) KillOnce(conn *pgx.Conn) func() {
	return sync.OnceFunc(func() { d.Terminate("pid = $1", conn.PgConn().PID()) })
}

// gate is the key of the advisory lock at which sessions stop.
const gate = 4711

// Gates is SQL that creates the function stop_at_gate. Triggers call the function between
// a change and its COMMIT. It stops the session while the gate of the given point is
// closed.
const Gates = `
CREATE TABLE closed_gate (point text);
CREATE FUNCTION stop_at_gate(at text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1min' SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM closed_gate WHERE point = at) THEN
        PERFORM pg_catalog.pg_advisory_xact_lock(4711);
    END IF;
END $$;
`

// AtGate is an SQL condition that is true while a session is stopped at a gate.
const AtGate = `EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
	WHERE datname = current_database() AND locktype = 'advisory' AND objid = 4711 AND NOT granted)`

// CloseGate closes the gate of one point in a database with Gates. The function pass
// opens the gate for later sessions, even after a crash of the server. The function
// release also lets the stopped session continue.
func CloseGate(tb testing.TB, pool *pgxpool.Pool, point string) (pass, release func()) {
	keeper := pgtest.ConnectAs(tb, pool.Config().ConnConfig.Copy())
	pgtest.Exec(tb, keeper, "SELECT pg_advisory_lock($1)", gate)
	pgtest.Exec(tb, pool, "INSERT INTO closed_gate VALUES ($1)", point)
	pass = func() { pgtest.Exec(tb, pool, "DELETE FROM closed_gate") }
	return pass, func() {
		pass()
		pgtest.Exec(tb, keeper, "SELECT pg_advisory_unlock($1)", gate)
	}
}

// KillAtGate calls reach, which brings work to a gate, kills the work there, opens the
// gate for later sessions and calls recovers, which must finish the work. The function
// kill ends a session, a process, or a process and its server.
func KillAtGate(reach func() (kill, pass func()), recovers func()) {
	kill, pass := reach()
	kill()
	pass()
	recovers()
}
