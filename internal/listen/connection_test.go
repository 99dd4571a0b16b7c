package listen_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/listen"
	"sexton/internal/pgtest"
)

const (
	lost    = "wakeup_connection_lost"
	failing = "due_work_query_failed"
)

func TestSubscriptionOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.awaitSleep()
	for range 5 {
		before := b.connections(listeners)
		require.Len(t, before, 1)
		b.Terminate("pid = $1", before[0])
		b.Exec(insert)
		b.requireDrained()
		pgtest.WaitFor(t, "one fresh connection", func(context.Context) (bool, error) {
			now := b.connections(listeners)
			return len(now) == 1 && now[0] != before[0], nil
		})
	}
	require.InDelta(t, 5, p.logged(lost), 2,
		"a busy machine may break a connection before it is there, and tell of it twice")
	require.False(t, p.Polls())
}

// A listener also receives notifications for River, on its first and each later
// connection.
func TestListenerPassesOnAnotherTopic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	heard := make(chan string, 1)
	p.Listener.Topic, p.Listener.OnTopic = "sexton.other", func(payload string) {
		select {
		case heard <- payload:
		default:
		}
	}
	p.awaitSleep()
	for round := range 3 {
		want := strconv.Itoa(round)
		pgtest.WaitFor(t, "the notification", func(context.Context) (bool, error) {
			b.Exec("SELECT pg_notify('sexton.other', $1)", want)
			select {
			case got := <-heard:
				return got == want, nil
			default:
				return false, nil
			}
		})
		b.Terminate("application_name = $1", listeners)
	}
	b.Exec(insert)
	b.requireDrained()
}

// What came in while nobody listened is found right after the connection is there again.
func TestSubscriptionQueriesAfterConnecting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(insert)
	p := newProbe(b)
	p.start()
	b.requireDrained()
	p.await("sleep", func() bool { return p.looks.Load() >= 3 })

	// Silently, so that only the look after connecting finds it.
	b.Exec("BEGIN; SET LOCAL sexton.notify = off; " + insert + "; COMMIT")
	b.Terminate("application_name = $1", listeners)
	b.requireDrained()
}

// Asleep, the subscription notices by its own notifications that its connection is
// stalled.
func TestStalledConnectionIsNoticedAsleep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	network := &pgtest.Network{}
	p := newProbe(b)
	p.Listener.Conn.DialFunc = network.Dial
	p.Timing.SelfCheck, p.Timing.SelfCheckWait, p.Timing.Answer = 100*time.Millisecond, 500*time.Millisecond,
		500*time.Millisecond
	p.awaitSleep()
	stall(t, network)
	b.Exec(insert)
	b.requireDrained()
	require.Positive(t, p.logged(lost))
	p.await("a fresh connection to hear", func() bool { return !p.Polls() })
}

// Awake, it notices by the answer that does not come.
func TestStalledConnectionIsNoticedAwake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	network := &pgtest.Network{}
	p := newProbe(b)
	p.Listener.Conn.DialFunc = network.Dial
	p.Timing.Answer = 500 * time.Millisecond
	open := p.gate()
	p.start()
	p.wakeUp()
	stall(t, network)
	open()
	p.await("a second connection", func() bool { return network.Dials.Load() >= 2 })
	b.requireDrained()
	p.await("the subscription to say so", func() bool { return p.logged(failing) > 0 })
}

// A pool that gives no connection away must not hold the subscription up for ever.
func TestSubscriptionDoesNotWaitForItsPool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Listener.Pool = elsewhere(t, b.URL).pool
	p.Timing.Answer = 100 * time.Millisecond
	held := pgtest.Acquire(t, p.Listener.Pool)
	p.start()
	p.await("the subscription to give up", func() bool { return p.logged(lost) > 0 })
	held.Release()
	b.Exec(insert)
	b.requireDrained()
}

// In shared mode by whoever that is, the lock cannot be had: writers go on notifying.
func TestForeignSessionHoldsTheLockShared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold("_shared")
	p := newProbe(b)
	p.awaitSleep()
	for range 20 {
		b.Exec(insert)
		b.requireDrained()
	}
	p.stop()
}

// Held exclusively, it keeps writers from notifying. Queries find their rows.
func TestForeignSessionHoldsTheLockExclusively(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold("")
	p := newProbe(b)
	p.Timing.MaxSleep = 20 * time.Millisecond
	p.awaitSleep()
	for range 5 {
		b.Exec(insert)
		b.requireDrained()
	}
	p.stop()
}

// The server may grant the lock in the moment in which waiting for it has taken too long.
func TestLockGrantedTooLateIsNotKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Timing.LockTimeout = time.Millisecond
	p.awaitSleep()
	foreign := b.connect()
	execute(t, foreign, "SET lock_timeout = '10s'") // A subscription that kept the lock would keep it for ever.
	for range 200 {
		// Released about when the subscription's patience ends.
		execute(t, foreign, "SELECT pg_advisory_lock_shared($1::int, $2::int)", b.key1, b.key2)
		b.Exec(insert)
		execute(t, foreign, "SELECT pg_advisory_unlock_all()")
		b.requireDrained()
	}
	pgtest.WaitFor(t, "the subscription to sleep without the lock", func(ctx context.Context) (bool, error) {
		awake, err := b.awake(ctx)
		return !awake, err
	})
}

func TestSubscriptionReportsWhetherItIsConnected(t *testing.T) {
	t.Parallel()
	p := newProbe(setup(t))
	connected := func(want bool) {
		pgtest.WaitFor(t, "a subscription that says whether it is connected",
			func(context.Context) (bool, error) { return p.Connected() == want, nil })
	}
	require.False(t, p.Connected(), "before it runs")
	p.awaitSleep()
	connected(true)
	p.stop()
	connected(false)
}

const (
	silent = "SET sexton.notify = off; " + insert + "; RESET sexton.notify"
	deaf   = "notifications_do_not_arrive"
)

// caller is a pool of one connection whose database can be changed. Notifications reach
// only their own.
type caller struct {
	pool     *pgxpool.Pool
	database atomic.Pointer[string]
}

func elsewhere(t *testing.T, url string) *caller {
	config := pgtest.Must(pgxpool.ParseConfig(url))(t)
	config.MaxConns = 1
	c := &caller{}
	config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
		if name := c.database.Load(); name != nil {
			conn.Database = *name
		}
		return nil
	}
	c.pool = pgtest.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(c.pool.Close)
	return c
}

func (c *caller) moveTo(database string) {
	c.database.Store(&database)
	c.pool.Reset()
}

func TestSubscriptionPollsWithoutNotifications(t *testing.T) {
	t.Parallel()
	b := setup(t)
	call := elsewhere(t, pgtest.New(t).URL)
	p := newProbe(b)
	p.Listener.Pool = call.pool
	p.Timing.SelfCheck, p.Timing.SelfCheckWait = 50*time.Millisecond, 50*time.Millisecond
	open := p.gate()
	p.start()
	p.await("the subscription to be deaf", p.Polls)
	b.Exec(silent)
	p.await("the work to begin", func() bool { return p.works.Load() == 1 })
	require.False(t, pgtest.Must(b.awake(t.Context()))(t), "behind a transaction pooler the lock would not be its own")
	open()
	b.requireDrained()

	calls := call.pool.Stat().AcquireCount()
	p.await("more checks", func() bool { return call.pool.Stat().AcquireCount() >= calls+5 })
	require.Equal(t, 1, p.logged(deaf), "said once")
	require.Zero(t, p.logged(lost))
	require.Zero(t, p.logged("notifications_arrive_again"))

	call.moveTo(b.Name)
	p.await("the subscription to hear", func() bool { return !p.Polls() })
	p.await("a log line", func() bool { return p.logged("notifications_arrive_again") == 1 })
	b.Exec(insert)
	b.requireDrained()
}

// A subscription that received nothing polls until a notification arrives, on any
// connection.
func TestSubscriptionPollsOnLaterConnectionsToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Listener.Pool = elsewhere(t, pgtest.New(t).URL).pool
	p.Timing.SelfCheckWait = 20 * time.Millisecond
	p.start()
	p.await("the subscription to be deaf", p.Polls)
	for range 3 {
		before := p.logged(lost)
		pgtest.WaitFor(t, "a connection", func(context.Context) (bool, error) {
			return len(b.connections(listeners)) == 1,
				nil
		})
		b.Terminate("application_name = $1", listeners)
		// It is said twice where the connection ends within the check of a fresh one.
		p.await("a lost connection", func() bool { return p.logged(lost) > before })
		b.Exec(silent)
		b.requireDrained()
	}
	require.True(t, p.Polls())
	require.Equal(t, 1, p.logged(deaf))
}

// The listener's first self-check may arrive late, for example on a busy machine. From
// then on it receives notifications.
func TestListenerStopsPollingAfterALateNotification(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	call := elsewhere(t, pgtest.New(t).URL)
	p.Listener.Pool = call.pool
	p.Timing.SelfCheck, p.Timing.SelfCheckWait = 50*time.Millisecond, 2*time.Second
	p.start()
	p.await("the subscription to be deaf", p.Polls)
	call.moveTo(pgtest.Must(pgx.ParseConfig(b.URL))(t).Database)
	p.await("the subscription to hear", func() bool { return !p.Polls() })
	require.Zero(t, p.logged(lost), "nothing is wrong with the connection")
	require.Equal(t, 1, p.logged("notifications_arrive_again"))
	b.Exec(insert)
	b.requireDrained()
}

// The reason for which the listener has cut its last connection is none for which the
// next one cannot be dialled: that is an outage, and to be told.
func TestPollingListenerLogsThatItCannotConnect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Listener.Pool = elsewhere(t, pgtest.New(t).URL).pool
	p.Timing.SelfCheck, p.Timing.SelfCheckWait = 50*time.Millisecond, 50*time.Millisecond
	var away atomic.Bool
	p.Listener.Conn.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if away.Load() {
			return nil, errors.New("no route to host")
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	p.start()
	p.await("the subscription to be deaf", p.Polls)
	away.Store(true)
	p.await("a line about it", func() bool { return p.logged(lost) > 0 })
	require.Regexp(t, lost+`.* error=.*no route to host`, p.log.String())
}

// An application may have the table locked for longer than a subscription waits for its
// awake lock. The look has its own time.
func TestQueryWaitsForALockedTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.awaitSleep()
	locked := b.Begin(t, "LOCK TABLE "+table)
	b.Exec("SELECT pg_notify($1, $2)", listen.Channel, kind)
	pgtest.Await(t, b.Pool(), "the look to wait", `
		SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database() AND wait_event = 'relation')`, subscriptions)
	require.NoError(t, locked.Rollback(t.Context()))
	b.Exec(insert)
	b.requireDrained()
	require.Zero(t, p.logged(failing))
}

// No notification arrives. A sleeping subscription queries when its time has passed,
// without the awake lock and the barrier.
func TestSleepingSubscriptionQueries(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"due":      "now()",
		"due soon": "clock_timestamp() + interval '300 ms'",
	}, func(t *testing.T, _, row string) {
		b := setup(t)
		p := newProbe(b)
		p.Timing.MaxSleep = 20 * time.Millisecond
		p.awaitSleep()
		b.Exec("SET sexton.notify = off; INSERT INTO " + table +
			" (fully_qualified_table_name, primary_key_value, consume_after) VALUES ('x', 1, " + row +
			"); RESET sexton.notify")
		b.requireDrained()
	})
}

// An idle subscription needs one statement for a look.
func TestIdleQueryIsOneStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Timing.MaxSleep = 20 * time.Millisecond
	p.awaitSleep()
	awake := b.connections(subscriptions)
	before := p.looks.Load()
	p.await("more looks", func() bool { return p.looks.Load() >= before+5 })
	require.Equal(t, awake, b.connections(subscriptions))
	require.Zero(t, p.Listener.Sessions.Stat().AcquiredConns())
}

// While one replica of a worker works, another one requests the work and sleeps. It takes
// over when the first one dies.
func TestReplicaWithoutTheLockSleeps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second, third := newProbe(b), newProbe(b), newProbe(b)
	working := make(chan struct{})
	once := sync.OnceFunc(func() { close(working) })
	first.work = func(ctx context.Context, _ int64) (time.Duration, error) {
		once()
		<-ctx.Done()
		return 0, ctx.Err()
	}
	second.Timing.MaxSleep = 20 * time.Millisecond
	third.Timing.MaxSleep = time.Hour
	for _, p := range []*probe{second, third} {
		p.work = func(ctx context.Context, _ int64) (time.Duration, error) {
			if p.waits.Load() == 0 {
				return 0, nil
			}
			return p.erase(ctx)
		}
	}
	first.awaitSleep()
	b.Exec(insert)
	<-working
	second.start()
	second.await("looks", func() bool { return second.works.Load() >= 3 })
	require.Zero(t, second.waits.Load())
	third.start()
	third.await("a request for the work", func() bool { return third.works.Load() >= 1 })
	asked, looked := third.works.Load(), second.works.Load()
	second.await("more looks", func() bool { return second.works.Load() >= looked+10 })
	require.LessOrEqual(t, third.works.Load(), asked+1,
		"it sleeps; only the start of its listener may call it once more")
	require.Len(t, b.Rows("SELECT FROM "+table), 1)
	first.stop()
	b.requireDrained()
}
