package listen_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/listen"
	"sexton/internal/pgtest"
)

// What falls due later is worked without anybody's notification.
func TestLaneWakesForWhatFallsDueLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	newProbe(b).awaitSleep()
	b.Exec("INSERT INTO " + table + ` (fully_qualified_table_name, primary_key_value, consume_after)
		SELECT 'x', n, clock_timestamp() + n * interval '100 ms' FROM generate_series(1, 3) AS n`)
	b.requireDrained()
}

// Work that cannot be done now is left alone, though not longer than it asked for.
func TestWorkIsLeftAloneForAPause(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		look time.Duration
		sql  string
	}{
		"usual": {never, insert},
		// Without a notification, which might come in after the first look.
		"looking often": {time.Millisecond, silent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const pause = 200 * time.Millisecond
			b := setup(t)
			p := newProbe(b)
			p.Timing.Look = test.look
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
	// As whoever takes away what was in the way.
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

func TestLaneStopsInEveryState(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, b *bundle, p *probe){
		"connecting": func(_ *testing.T, _ *bundle, p *probe) {
			var dialling atomic.Bool
			p.Ear.Conn.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
				dialling.Store(true)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			p.start()
			p.await("the lane to dial", dialling.Load)
		},
		"waiting to connect again": func(_ *testing.T, _ *bundle, p *probe) {
			p.Timing.Reconnect = never
			p.Ear.Conn.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
			p.start()
			p.await("the lane to give up", func() bool { return p.logged(lost) == 1 })
		},
		"checking its hearing": func(t *testing.T, _ *bundle, p *probe) {
			t.Helper()
			p.Timing.SelfCheckWait = never
			p.Ear.Pool = elsewhere(t, pgtest.New(t).URL).pool
			p.start()
			p.await("the check", func() bool { return p.Ear.Pool.Stat().AcquireCount() == 1 && p.Ear.Pool.Stat().AcquiredConns() == 0 })
		},
		"waiting for the lock": func(t *testing.T, b *bundle, p *probe) {
			t.Helper()
			p.Timing.LockTimeout = never
			b.hold("")
			b.Exec(insert)
			p.start()
			pgtest.WaitFor(t, "a session that waits", func(context.Context) (bool, error) {
				return len(b.Rows("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $1::int::oid AND pid = ANY ($2)",
					b.key2, b.connections(lanes))) == 1, nil
			})
		},
		"at work": func(_ *testing.T, _ *bundle, p *probe) {
			p.gate()
			p.start()
			p.wakeUp()
		},
		"leaving work alone": func(t *testing.T, _ *bundle, p *probe) {
			t.Helper()
			p.work = func(context.Context, int64) (time.Duration, error) { return never, nil }
			p.awaitSleep()
			p.wakeUp()
		},
		"at the barrier": func(t *testing.T, b *bundle, p *probe) {
			t.Helper()
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
			pgtest.WaitFor(t, "the connection to be closed", func(context.Context) (bool, error) { return len(b.connections(ears)) == 0, nil })
			p.await("the lane's connection to be given back", func() bool { return p.Ear.Sessions.Stat().AcquiredConns() == 0 })
		})
	}
}
