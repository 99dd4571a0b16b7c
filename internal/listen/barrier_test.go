package listen_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/listen"
	"sexton/internal/pgtest"
)

// barrierWait is the time that a test waits for further queries of a subscription at the
// barrier. If the subscription sleeps instead, it makes no further queries.
const barrierWait = 500 * time.Millisecond

// The barrier waits for a writer that found the awake lock taken, did not notify, and
// commits only after the subscription has released the lock.
func TestBarrierWaitsForWriters(t *testing.T) {
	t.Parallel()
	// Each script has the writer's statements before the subscription releases its lock,
	// the statements while the subscription waits at the barrier, and the end of the
	// transaction.
	scripts := map[string][3]string{
		"open":                     {insert, "SELECT", "COMMIT"},
		"more rows later":          {insert, insert, "COMMIT"},
		"savepoint":                {"SAVEPOINT s; " + insert + "; RELEASE s", "SELECT", "COMMIT"},
		"rolled-back savepoint":    {insert + "; SAVEPOINT s; " + insert, "ROLLBACK TO s", "COMMIT"},
		"tracked parent":           {"DELETE FROM parents WHERE id = 1", "SELECT", "COMMIT"},
		"prepared before":          {insert + "; PREPARE TRANSACTION 'gid'", "SELECT", "COMMIT PREPARED 'gid'"},
		"prepared at the barrier":  {insert, "PREPARE TRANSACTION 'gid'", "COMMIT PREPARED 'gid'"},
		"prepared and rolled back": {insert, "PREPARE TRANSACTION 'gid'", "ROLLBACK PREPARED 'gid'"},
	}
	for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		for name, script := range scripts {
			if level != "READ COMMITTED" && name != "open" && name != "prepared at the barrier" {
				continue
			}
			t.Run(level+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				p := newProbe(b)
				open := p.gate()
				p.start()
				p.wakeUp()
				writer := b.connect()
				step := func(sql string) {
					execute(t, writer, strings.ReplaceAll(sql, "gid", b.Name))
				}
				step("BEGIN ISOLATION LEVEL " + level + "; " + script[0])

				open()
				p.awaitBarrier()
				step(script[1])
				p.awaitQueries(5)
				step(script[2])
				b.requireDrained()
			})
		}
	}
}

// awaitBarrier waits until the subscription has released its lock and queries at the
// barrier.
func (p *probe) awaitBarrier() {
	p.b.t.Helper()
	pgtest.WaitFor(p.b.t, "the awake lock to be released", func(ctx context.Context) (bool, error) {
		awake, err := p.b.awake(ctx)
		return !awake, err
	})
	p.awaitQueries(5)
}

// awaitQueries waits for more queries of the subscription, but not longer than
// barrierWait.
func (p *probe) awaitQueries(more int64) {
	p.b.t.Helper()
	before, began := p.queries.Load(), time.Now()
	p.await("more queries of the subscription", func() bool {
		return p.queries.Load() >= before+more || time.Since(began) > barrierWait
	})
}

// awaitNoQueries waits until the subscription makes no more queries. At the barrier it
// queries every few milliseconds.
func (p *probe) awaitNoQueries() {
	p.b.t.Helper()
	queries := int64(-1)
	p.await("the subscription to sleep", func() bool {
		before := queries
		queries = p.queries.Load()
		return queries == before
	})
}

// The barrier does not wait for a writer that began after the awake lock was released,
// because that writer notifies.
func TestBarrierDoesNotWaitForLaterWriters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	open := p.gate()
	p.start()
	p.wakeUp()
	early, late := b.connect(), b.connect()
	execute(t, early, "BEGIN; "+insert)
	open()
	p.awaitBarrier()
	execute(t, late, "BEGIN; "+insert)
	execute(t, early, "ROLLBACK")
	p.awaitNoQueries()
	execute(t, late, "COMMIT")
	b.requireDrained()
}

// The barrier does not wait for readers, or for writers of other tables and databases.
func TestBarrierWaitsForWritersOnly(t *testing.T) {
	t.Parallel()
	b, other := setup(t), setup(t)
	p := newProbe(b)
	reader, writer, foreigner := b.connect(), b.connect(), other.connect()
	execute(t, reader, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM "+table)
	execute(t, writer, "BEGIN; CREATE TABLE another (id int); INSERT INTO another VALUES (1)")
	execute(t, foreigner, "BEGIN; "+insert)
	p.awaitSleep()
	p.awaitNoQueries()
	b.Exec(insert)
	b.requireDrained()
}

// beforeBarrier is a tracer that calls run once, after the subscription has released its
// lock and before it lists the writers.
type beforeBarrier struct {
	once sync.Once
	run  func()
}

func (b *beforeBarrier) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "virtualtransaction") {
		b.once.Do(b.run)
	}
	return ctx
}

func (b *beforeBarrier) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The listener loses its connection after the subscription has released its lock. Writers
// find the lock free and notify, but no connection receives the notification. The rows
// are found by the query after the barrier, or by the query after the listener has
// connected again.
func TestListenerDiesBetweenUnlockAndBarrier(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"writer before the barrier", "writer after the barrier"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := newProbe(b)
			p.Poll = never
			var dials atomic.Int64
			redial := make(chan struct{})
			p.Listener.Conn.AfterConnect = func(ctx context.Context, _ *pgconn.PgConn) error {
				if dials.Add(1) > 1 {
					select {
					case <-redial:
					case <-ctx.Done():
					}
				}
				return nil
			}
			writer := b.connect()
			begin := func() { execute(t, writer, "BEGIN; "+insert) }
			before := name == "writer before the barrier"
			p.tracer = &beforeBarrier{run: func() {
				b.Terminate("application_name = $1", listeners)
				if before {
					begin()
				}
			}}
			open := p.gate()
			b.Exec(insert)
			p.start()
			p.await("the work to begin", func() bool { return p.workCalls.Load() == 1 })
			open()
			p.await("the listener to dial again", func() bool { return dials.Load() == 2 })
			if before {
				p.awaitQueries(5)
				execute(t, writer, "COMMIT")
				b.requireDrained()
				close(redial)
				return
			}
			p.awaitNoQueries()
			begin()
			execute(t, writer, "COMMIT")
			close(redial)
			b.requireDrained()
		})
	}
}

// A sleeping subscription wakes when a row falls due, without a notification.
func TestSubscriptionWakesWhenARowFallsDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	newProbe(b).awaitSleep()
	b.Exec("INSERT INTO " + table + ` (fully_qualified_table_name, primary_key_value, consume_after)
		SELECT 'x', n, clock_timestamp() + n * interval '100 ms' FROM generate_series(1, 3) AS n`)
	b.requireDrained()
}

// If the work returns a pause, the subscription does not request the work again before
// the pause has ended.
func TestSubscriptionPausesBetweenWork(t *testing.T) {
	t.Parallel()
	type example struct {
		maxSleep time.Duration
		sql      string
	}
	pgtest.Each(t, map[string]example{
		"usual": {never, insert},
		// The silent insert sends no notification, which could otherwise end the pause.
		"frequent queries": {time.Millisecond, silentInsert},
	}, func(t *testing.T, _ string, test example) {
		const pause = 200 * time.Millisecond
		b := setup(t)
		p := newProbe(b)
		p.Timing.MaxSleep = test.maxSleep
		var began time.Time
		var elapsed atomic.Int64
		p.work = func(ctx context.Context, call int64) (time.Duration, error) {
			if call == 1 {
				began = time.Now()
				return pause, nil
			}
			elapsed.CompareAndSwap(0, int64(time.Since(began)))
			return p.deleteDue(ctx)
		}
		// The notification of the first connection would end the pause, so the
		// subscription must have consumed it before the insert.
		p.awaitSleep()
		b.Exec(test.sql)
		b.requireDrained()
		require.GreaterOrEqual(t, time.Duration(elapsed.Load()), pause)
	})
}

func TestNotificationEndsAPause(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.work = func(ctx context.Context, call int64) (time.Duration, error) {
		if call == 1 {
			return never, nil
		}
		return p.deleteDue(ctx)
	}
	p.awaitSleep()
	p.wakeUp()
	b.Exec(insert)
	// An operator who has removed an obstacle can notify in the same way.
	b.Exec("SELECT pg_notify($1, $2)", listen.Channel, kind)
	b.requireDrained()
	require.EqualValues(t, 2, p.workCalls.Load(), "a writer does not notify while the subscription is awake")
}

// If the work fails, the subscription logs the error and requests the work again.
func TestFailedWorkIsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.work = func(ctx context.Context, call int64) (time.Duration, error) {
		if call <= 2 {
			return 0, net.ErrClosed
		}
		return p.deleteDue(ctx)
	}
	p.start()
	b.Exec(insert)
	b.requireDrained()
	require.EqualValues(t, 3, p.workCalls.Load())
	require.Equal(t, 2, p.logged(queryFailed), "the first failure is a warning, the second is logged at debug level")
}

func TestSubscriptionStopsInEveryState(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, b *bundle, p *probe){
		"connecting": func(_ *testing.T, _ *bundle, p *probe) {
			var dialing atomic.Bool
			p.Listener.Conn.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
				dialing.Store(true)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			p.start()
			p.await("the subscription to dial", dialing.Load)
		},
		"waiting to connect again": func(_ *testing.T, _ *bundle, p *probe) {
			p.Timing.Reconnect = never
			p.Listener.Conn.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
			p.start()
			p.await("the failed connection to be logged", func() bool { return p.logged(connectionLost) == 1 })
		},
		"waiting for the self-check": func(t *testing.T, _ *bundle, p *probe) {
			p.Timing.SelfCheckWait = never
			p.Listener.Pool = newNotifyPool(t, pgtest.New(t).URL).pool
			p.start()
			p.await("the notification of the self-check to be sent", func() bool {
				return p.Listener.Pool.Stat().AcquireCount() == 1 &&
					p.Listener.Pool.Stat().AcquiredConns() == 0
			})
		},
		"waiting for the lock": func(t *testing.T, b *bundle, p *probe) {
			p.Timing.LockTimeout = never
			b.holdAwakeLock("")
			b.Exec(insert)
			p.start()
			pgtest.WaitFor(t, "a session that waits", func(context.Context) (bool, error) {
				return len(b.Rows("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $1::int::oid AND pid = ANY ($2)",
					b.key2, b.connections(subscriptions))) == 1, nil
			})
		},
		"working": func(_ *testing.T, _ *bundle, p *probe) {
			p.gate()
			p.start()
			p.wakeUp()
		},
		"pausing between work": func(_ *testing.T, _ *bundle, p *probe) {
			p.work = func(context.Context, int64) (time.Duration, error) { return never, nil }
			p.awaitSleep()
			p.wakeUp()
		},
		"at the barrier": func(t *testing.T, b *bundle, p *probe) {
			p.Timing.BarrierPoll, p.Timing.BarrierPollMax = never, never
			execute(t, b.connect(), "BEGIN; "+insert)
			p.awaitSleep()
		},
		"asleep": func(_ *testing.T, _ *bundle, p *probe) { p.awaitSleep() },
	}
	for name, reach := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := newProbe(b)
			reach(t, b, p)
			p.stop()
			pgtest.WaitFor(t, "the connection to be closed",
				func(context.Context) (bool, error) { return len(b.connections(listeners)) == 0, nil })
			p.await("the subscription's connection to be released",
				func() bool { return p.Listener.Sessions.Stat().AcquiredConns() == 0 })
		})
	}
}
