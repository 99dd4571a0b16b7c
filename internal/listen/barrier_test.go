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

// unwaited is how long a test waits for a subscription to look behind its barrier. One
// that has fallen asleep instead never does.
const unwaited = 500 * time.Millisecond

// A writer that found the subscription awake and did not notify commits only after the
// subscription has tried to sleep.
func TestBarrierWaitsForWriters(t *testing.T) {
	t.Parallel()
	// What the writer does before the subscription drops its lock, while it stands at the
	// barrier, and last.
	scripts := map[string][3]string{
		"open":                    {insert, "SELECT", "COMMIT"},
		"more rows later":         {insert, insert, "COMMIT"},
		"savepoint":               {"SAVEPOINT s; " + insert + "; RELEASE s", "SELECT", "COMMIT"},
		"beside a savepoint":      {insert + "; SAVEPOINT s; " + insert, "ROLLBACK TO s", "COMMIT"},
		"tracked parent":          {"DELETE FROM parents WHERE id = 1", "SELECT", "COMMIT"},
		"prepared before":         {insert + "; PREPARE TRANSACTION 'gid'", "SELECT", "COMMIT PREPARED 'gid'"},
		"prepared at the barrier": {insert, "PREPARE TRANSACTION 'gid'", "COMMIT PREPARED 'gid'"},
		"prepared and taken back": {insert, "PREPARE TRANSACTION 'gid'", "ROLLBACK PREPARED 'gid'"},
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
				p.awaitLooks(5)
				step(script[2])
				b.requireDrained()
			})
		}
	}
}

// awaitBarrier waits until the subscription has dropped its lock.
func (p *probe) awaitBarrier() {
	p.b.t.Helper()
	pgtest.WaitFor(p.b.t, "the awake lock to be dropped", func(ctx context.Context) (bool, error) {
		awake, err := p.b.awake(ctx)
		return !awake, err
	})
	p.awaitLooks(5)
}

// awaitLooks waits until the subscription has looked some more times, or evidently does
// not.
func (p *probe) awaitLooks(more int64) {
	p.b.t.Helper()
	before, began := p.looks.Load(), time.Now()
	p.await("more looks", func() bool {
		return p.looks.Load() >= before+more || time.Since(began) > unwaited
	})
}

// awaitStill waits until the subscription looks no more: at the barrier it would do so
// every few milliseconds.
func (p *probe) awaitStill() {
	p.b.t.Helper()
	looks := int64(-1)
	p.await("the subscription to sleep", func() bool {
		before := looks
		looks = p.looks.Load()
		return looks == before
	})
}

// Whoever finds nobody awake notifies, and is not waited for twice.
func TestBarrierLetsLaterWritersPass(t *testing.T) {
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
	p.awaitStill()
	execute(t, late, "COMMIT")
	b.requireDrained()
}

// Readers, and writers of other tables and databases, hold nobody up.
func TestBarrierWaitsForWritersOnly(t *testing.T) {
	t.Parallel()
	b, other := setup(t), setup(t)
	p := newProbe(b)
	reader, writer, foreigner := b.connect(), b.connect(), other.connect()
	execute(t, reader, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM "+table)
	execute(t, writer, "BEGIN; CREATE TABLE another (id int); INSERT INTO another VALUES (1)")
	execute(t, foreigner, "BEGIN; "+insert)
	p.awaitSleep()
	p.awaitStill()
	b.Exec(insert)
	b.requireDrained()
}

// between runs once, when the subscription has dropped its lock and is about to look for
// writers.
type between struct {
	once sync.Once
	run  func()
}

func (b *between) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "virtualtransaction") {
		b.once.Do(b.run)
	}
	return ctx
}

func (b *between) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The listener dies after the subscription has released its lock. Writers find the key
// free and notify, and no connection receives it.
func TestListenerDiesBetweenUnlockAndBarrier(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"writer before the barrier", "writer behind the barrier"} {
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
			p.tracer = &between{run: func() {
				b.Terminate("application_name = $1", listeners)
				if before {
					begin()
				}
			}}
			open := p.gate()
			b.Exec(insert)
			p.start()
			p.await("the work to begin", func() bool { return p.works.Load() == 1 })
			open()
			p.await("the listener to dial again", func() bool { return dials.Load() == 2 })
			if before {
				p.awaitLooks(5)
				execute(t, writer, "COMMIT")
				b.requireDrained()
				close(redial)
				return
			}
			p.awaitStill()
			begin()
			execute(t, writer, "COMMIT")
			close(redial)
			b.requireDrained()
		})
	}
}

// What falls due later is worked without anybody's notification.
func TestSubscriptionWakesForWhatFallsDueLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	newProbe(b).awaitSleep()
	b.Exec("INSERT INTO " + table + ` (fully_qualified_table_name, primary_key_value, consume_after)
		SELECT 'x', n, clock_timestamp() + n * interval '100 ms' FROM generate_series(1, 3) AS n`)
	b.requireDrained()
}

// Work that cannot be done now is left alone, though not longer than it asked for.
func TestSubscriptionPausesBetweenWork(t *testing.T) {
	t.Parallel()
	type example struct {
		look time.Duration
		sql  string
	}
	pgtest.Each(t, map[string]example{
		"usual": {never, insert},
		// Without a notification, which might come in after the first look.
		"looking often": {time.Millisecond, silent},
	}, func(t *testing.T, _ string, test example) {
		const pause = 200 * time.Millisecond
		b := setup(t)
		p := newProbe(b)
		p.Timing.MaxSleep = test.look
		var began time.Time
		var rested atomic.Int64
		p.work = func(ctx context.Context, call int64) (time.Duration, error) {
			if call == 1 {
				began = time.Now()
				return pause, nil
			}
			rested.CompareAndSwap(0, int64(time.Since(began)))
			return p.erase(ctx)
		}
		p.awaitSleep() // Its notification must not come in later.
		b.Exec(test.sql)
		b.requireDrained()
		require.GreaterOrEqual(t, time.Duration(rested.Load()), pause)
	})
}

func TestNotificationCutsAPauseShort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.work = func(ctx context.Context, call int64) (time.Duration, error) {
		if call == 1 {
			return never, nil
		}
		return p.erase(ctx)
	}
	p.awaitSleep()
	p.wakeUp()
	b.Exec(insert)
	// Like an operator who removes the obstacle.
	b.Exec("SELECT pg_notify($1, $2)", listen.Channel, kind)
	b.requireDrained()
	require.EqualValues(t, 2, p.works.Load(), "a writer beside it wakes nobody")
}

// What goes wrong with the work is said, and the work tried again.
func TestFailedWorkIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.work = func(ctx context.Context, call int64) (time.Duration, error) {
		if call <= 2 {
			return 0, net.ErrClosed
		}
		return p.erase(ctx)
	}
	p.start()
	b.Exec(insert)
	b.requireDrained()
	require.EqualValues(t, 3, p.works.Load())
	require.Equal(t, 2, p.logged(failing), "once loudly")
}

func TestSubscriptionStopsInEveryState(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, b *bundle, p *probe){
		"connecting": func(_ *testing.T, _ *bundle, p *probe) {
			var dialling atomic.Bool
			p.Listener.Conn.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
				dialling.Store(true)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			p.start()
			p.await("the subscription to dial", dialling.Load)
		},
		"waiting to connect again": func(_ *testing.T, _ *bundle, p *probe) {
			p.Timing.Reconnect = never
			p.Listener.Conn.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
			p.start()
			p.await("the subscription to give up", func() bool { return p.logged(lost) == 1 })
		},
		"checking its hearing": func(t *testing.T, _ *bundle, p *probe) {
			p.Timing.SelfCheckWait = never
			p.Listener.Pool = elsewhere(t, pgtest.New(t).URL).pool
			p.start()
			p.await("the check", func() bool {
				return p.Listener.Pool.Stat().AcquireCount() == 1 &&
					p.Listener.Pool.Stat().AcquiredConns() == 0
			})
		},
		"waiting for the lock": func(t *testing.T, b *bundle, p *probe) {
			p.Timing.LockTimeout = never
			b.hold("")
			b.Exec(insert)
			p.start()
			pgtest.WaitFor(t, "a session that waits", func(context.Context) (bool, error) {
				return len(b.Rows("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $1::int::oid AND pid = ANY ($2)",
					b.key2, b.connections(subscriptions))) == 1, nil
			})
		},
		"at work": func(_ *testing.T, _ *bundle, p *probe) {
			p.gate()
			p.start()
			p.wakeUp()
		},
		"leaving work alone": func(_ *testing.T, _ *bundle, p *probe) {
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
			p.await("the subscription's connection to be given back",
				func() bool { return p.Listener.Sessions.Stat().AcquiredConns() == 0 })
		})
	}
}
