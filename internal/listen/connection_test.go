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
	connectionLost = "wakeup_connection_lost"
	queryFailed    = "due_work_query_failed"
)

func TestSubscriptionContinuesAfterLostConnections(t *testing.T) {
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
		pgtest.WaitFor(t, "one new connection", func(context.Context) (bool, error) {
			now := b.connections(listeners)
			return len(now) == 1 && now[0] != before[0], nil
		})
	}
	require.InDelta(t, 5, p.logged(connectionLost), 2,
		"a connection may end while it is established, or its loss may be logged twice")
	require.False(t, p.Polls())
}

// The listener passes notifications of another channel to OnTopic, on its first and on
// each later connection.
func TestListenerPassesOnAnotherTopic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	received := make(chan string, 1)
	p.Listener.Topic, p.Listener.OnTopic = "sexton.other", func(payload string) {
		select {
		case received <- payload:
		default:
		}
	}
	p.awaitSleep()
	for round := range 3 {
		want := strconv.Itoa(round)
		pgtest.WaitFor(t, "the notification", func(context.Context) (bool, error) {
			b.Exec("SELECT pg_notify('sexton.other', $1)", want)
			select {
			case got := <-received:
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

// The subscription queries immediately after each connection of its listener. It finds
// rows that were inserted before without a notification.
func TestSubscriptionQueriesAfterConnecting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(insert)
	p := newProbe(b)
	p.start()
	b.requireDrained()
	p.await("the subscription to sleep", func() bool { return p.queries.Load() >= 3 })

	// The insert sends no notification, so only the query after the next connection can
	// find the row.
	b.Exec("BEGIN; SET LOCAL sexton.notify = off; " + insert + "; COMMIT")
	b.Terminate("application_name = $1", listeners)
	b.requireDrained()
}

// While the subscription sleeps, the listener's self-check detects that the connection is
// stalled.
func TestSelfCheckDetectsAStalledConnection(t *testing.T) {
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
	require.Positive(t, p.logged(connectionLost))
	p.await("a new connection to receive notifications", func() bool { return !p.Polls() })
}

// While the subscription is awake, a query timeout detects a stalled connection.
func TestTimeoutDetectsAStalledConnection(t *testing.T) {
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
	p.await("the failed query to be logged", func() bool { return p.logged(queryFailed) > 0 })
}

// If the listener's pool has no free connection, the self-check fails after the timeout
// and the listener connects again.
func TestSelfCheckDoesNotWaitForItsPool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Listener.Pool = newNotifyPool(t, b.URL).pool
	p.Timing.Answer = 100 * time.Millisecond
	held := pgtest.Acquire(t, p.Listener.Pool)
	p.start()
	p.await("the failed self-check to be logged", func() bool { return p.logged(connectionLost) > 0 })
	held.Release()
	b.Exec(insert)
	b.requireDrained()
}

// If another session holds the awake lock in shared mode, the subscription cannot take
// the lock, and writers notify.
func TestSharedAwakeLockOfAnotherSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.holdAwakeLock("_shared")
	p := newProbe(b)
	p.awaitSleep()
	for range 20 {
		b.Exec(insert)
		b.requireDrained()
	}
	p.stop()
}

// If another session holds the awake lock exclusively, writers do not notify. The
// subscription finds the rows by its regular queries.
func TestExclusiveAwakeLockOfAnotherSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.holdAwakeLock("")
	p := newProbe(b)
	p.Timing.MaxSleep = 20 * time.Millisecond
	p.awaitSleep()
	for range 5 {
		b.Exec(insert)
		b.requireDrained()
	}
	p.stop()
}

// The server may grant the lock at the moment at which the lock timeout expires. The
// subscription releases that lock.
func TestLockGrantedTooLateIsReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Timing.LockTimeout = time.Millisecond
	p.awaitSleep()
	foreign := b.connect()
	// If the subscription kept the lock, the foreign session's request would fail.
	execute(t, foreign, "SET lock_timeout = '10s'")
	for range 200 {
		// The foreign session releases its lock at about the time at which the
		// subscription's lock timeout expires.
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
	waitForConnected := func(want bool) {
		pgtest.WaitFor(t, "the subscription's connection state to change",
			func(context.Context) (bool, error) { return p.Connected() == want, nil })
	}
	require.False(t, p.Connected(), "before it runs")
	p.awaitSleep()
	waitForConnected(true)
	p.stop()
	waitForConnected(false)
}

const (
	silentInsert = "SET sexton.notify = off; " + insert + "; RESET sexton.notify"
	notReceiving = "notifications_do_not_arrive"
)

// notifyPool is a pool with one connection whose database can be changed. A notification
// reaches only listeners of the database that sent it, so a listener whose pool is in
// another database receives none.
type notifyPool struct {
	pool     *pgxpool.Pool
	database atomic.Pointer[string]
}

func newNotifyPool(t *testing.T, url string) *notifyPool {
	config := pgtest.Must(pgxpool.ParseConfig(url))(t)
	config.MaxConns = 1
	c := &notifyPool{}
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

func (c *notifyPool) moveTo(database string) {
	c.database.Store(&database)
	c.pool.Reset()
}

func TestSubscriptionPollsWithoutNotifications(t *testing.T) {
	t.Parallel()
	b := setup(t)
	notifier := newNotifyPool(t, pgtest.New(t).URL)
	p := newProbe(b)
	p.Listener.Pool = notifier.pool
	p.Timing.SelfCheck, p.Timing.SelfCheckWait = 50*time.Millisecond, 50*time.Millisecond
	open := p.gate()
	p.start()
	p.await("the subscription to poll", p.Polls)
	b.Exec(silentInsert)
	p.await("the work to begin", func() bool { return p.workCalls.Load() == 1 })
	require.False(t, pgtest.Must(b.awake(t.Context()))(t), "through a transaction pooler another session could own the lock")
	open()
	b.requireDrained()

	calls := notifier.pool.Stat().AcquireCount()
	p.await("more checks", func() bool { return notifier.pool.Stat().AcquireCount() >= calls+5 })
	require.Equal(t, 1, p.logged(notReceiving), "logged once")
	require.Zero(t, p.logged(connectionLost))
	require.Zero(t, p.logged("notifications_arrive_again"))

	notifier.moveTo(b.Name)
	p.await("the subscription to receive notifications", func() bool { return !p.Polls() })
	p.await("the recovery to be logged", func() bool { return p.logged("notifications_arrive_again") == 1 })
	b.Exec(insert)
	b.requireDrained()
}

// A listener that received no notification polls on all further connections, until a
// notification arrives.
func TestSubscriptionPollsOnLaterConnectionsToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Listener.Pool = newNotifyPool(t, pgtest.New(t).URL).pool
	p.Timing.SelfCheckWait = 20 * time.Millisecond
	p.start()
	p.await("the subscription to poll", p.Polls)
	for range 3 {
		before := p.logged(connectionLost)
		pgtest.WaitFor(t, "the listener's connection", func(context.Context) (bool, error) {
			return len(b.connections(listeners)) == 1,
				nil
		})
		b.Terminate("application_name = $1", listeners)
		// The loss is logged twice if the connection ends during the self-check of a new
		// connection.
		p.await("the lost connection to be logged", func() bool { return p.logged(connectionLost) > before })
		b.Exec(silentInsert)
		b.requireDrained()
	}
	require.True(t, p.Polls())
	require.Equal(t, 1, p.logged(notReceiving))
}

// If the first self-check arrives after its timeout, for example on a busy machine, the
// listener stops polling.
func TestListenerStopsPollingAfterALateNotification(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	notifier := newNotifyPool(t, pgtest.New(t).URL)
	p.Listener.Pool = notifier.pool
	p.Timing.SelfCheck, p.Timing.SelfCheckWait = 50*time.Millisecond, 2*time.Second
	p.start()
	p.await("the subscription to poll", p.Polls)
	notifier.moveTo(pgtest.Must(pgx.ParseConfig(b.URL))(t).Database)
	p.await("the subscription to receive notifications", func() bool { return !p.Polls() })
	require.Zero(t, p.logged(connectionLost), "the connection is kept")
	require.Equal(t, 1, p.logged("notifications_arrive_again"))
	b.Exec(insert)
	b.requireDrained()
}

// A listener closes its connection if it still receives no notifications, and does not
// log that. If the next connection fails, it logs the error of that connection.
func TestPollingListenerLogsThatItCannotConnect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Listener.Pool = newNotifyPool(t, pgtest.New(t).URL).pool
	p.Timing.SelfCheck, p.Timing.SelfCheckWait = 50*time.Millisecond, 50*time.Millisecond
	var unreachable atomic.Bool
	p.Listener.Conn.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if unreachable.Load() {
			return nil, errors.New("no route to host")
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	p.start()
	p.await("the subscription to poll", p.Polls)
	unreachable.Store(true)
	p.await("the failed connection to be logged", func() bool { return p.logged(connectionLost) > 0 })
	require.Regexp(t, connectionLost+`.* error=.*no route to host`, p.log.String())
}

// An application may lock the table for longer than the lock timeout of the awake lock.
// The query for due work waits for the table without an error.
func TestQueryWaitsForALockedTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.awaitSleep()
	locked := b.Begin(t, "LOCK TABLE "+table)
	b.Exec("SELECT pg_notify($1, $2)", listen.Channel, kind)
	pgtest.Await(t, b.Pool(), "the query to wait for the table", `
		SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database() AND wait_event = 'relation')`, subscriptions)
	require.NoError(t, locked.Rollback(t.Context()))
	b.Exec(insert)
	b.requireDrained()
	require.Zero(t, p.logged(queryFailed))
}

// A sleeping subscription queries after MaxSleep, or when a row falls due, without a
// notification.
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

// A query of a sleeping subscription opens no connection and takes none of the Sessions
// pool.
func TestIdleQueryUsesNoSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Timing.MaxSleep = 20 * time.Millisecond
	p.awaitSleep()
	awake := b.connections(subscriptions)
	before := p.queries.Load()
	p.await("more queries of the subscription", func() bool { return p.queries.Load() >= before+5 })
	require.Equal(t, awake, b.connections(subscriptions))
	require.Zero(t, p.Listener.Sessions.Stat().AcquiredConns())
}

// While one replica works, another replica requests the work once and sleeps. After the
// first replica has stopped, the other one does the work.
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
			if p.waitingCalls.Load() == 0 {
				return 0, nil
			}
			return p.deleteDue(ctx)
		}
	}
	first.awaitSleep()
	b.Exec(insert)
	<-working
	second.start()
	second.await("three requests for the work", func() bool { return second.workCalls.Load() >= 3 })
	require.Zero(t, second.waitingCalls.Load())
	third.start()
	third.await("a request for the work", func() bool { return third.workCalls.Load() >= 1 })
	requests, earlier := third.workCalls.Load(), second.workCalls.Load()
	second.await("more requests for the work", func() bool { return second.workCalls.Load() >= earlier+10 })
	require.LessOrEqual(t, third.workCalls.Load(), requests+1,
		"the third subscription sleeps. Only the start of its listener may wake it once more")
	require.Len(t, b.Rows("SELECT FROM "+table), 1)
	first.stop()
	b.requireDrained()
}
