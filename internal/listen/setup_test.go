package listen_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbsqlc"
	"sexton/internal/dbtest"
	"sexton/internal/listen"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	kind   = "loose_foreign_keys_cleanup"
	table  = "loose_foreign_keys_deleted_records"
	insert = "INSERT INTO " + table + " (fully_qualified_table_name, primary_key_value) VALUES ('x', 1)"
	// never is longer than any test. An interval of this length is switched off.
	never = time.Hour
	// wakeUpTimeout is the time after which a wake-up counts as lost.
	wakeUpTimeout = 20 * time.Second
	// listeners is the application_name of the listening connections, and subscriptions
	// the one of the connections of awake subscriptions.
	listeners, subscriptions = "listener", "subscription"
)

// bundle is a database whose tombstones wake a kind, with a tracked parent table.
type bundle struct {
	*dbtest.DB

	t          *testing.T
	key1, key2 int32
}

func setup(t *testing.T) *bundle {
	b := &bundle{DB: dbtest.New(t), t: t}
	b.key1, b.key2 = triggers.AwakeKey(kind)
	b.Exec("CREATE TABLE parents AS SELECT generate_series(1, 100000) AS id; ALTER TABLE parents ADD PRIMARY KEY (id); CREATE TABLE idle ()")
	pgtest.Must(triggers.Install(t.Context(), b.connect(), triggers.Config{
		TrackedSchema: "public", Wake: []triggers.Wake{{Schema: "public", Table: table, Kind: kind}},
	}, []triggers.Parent{{Schema: "public", Table: "parents", KeyColumns: []string{"id"}}}))(t)
	t.Cleanup(func() {
		// A database with prepared transactions cannot be dropped.
		for _, row := range b.Rows("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()") {
			b.Exec("ROLLBACK PREPARED '" + row[0] + "'")
		}
	})
	return b
}

func (b *bundle) connect() *pgx.Conn {
	b.t.Helper()
	return pgtest.Connect(b.t, b.URL)
}

// holdAwakeLock takes the awake lock in a new session and returns its connection. The
// mode is "" for exclusive or "_shared".
func (b *bundle) holdAwakeLock(mode string) *pgx.Conn {
	b.t.Helper()
	conn := b.connect()
	execute(b.t, conn, "SELECT pg_advisory_lock"+mode+"($1::int, $2::int)", b.key1, b.key2)
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}

// awake reports whether any session holds the awake lock exclusively.
func (b *bundle) awake(ctx context.Context) (held bool, err error) {
	err = b.Pool().QueryRow(ctx, `
		SELECT EXISTS (
			SELECT FROM pg_locks
			WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted
			  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			  AND classid = $1::int::oid AND objid = $2::int::oid)`, b.key1, b.key2).Scan(&held)
	return held, err
}

// requireDrained waits until no tombstone is left. It fails if that takes longer than
// wakeUpTimeout.
func (b *bundle) requireDrained() {
	b.t.Helper()
	began := time.Now()
	pgtest.WaitFor(b.t, "the backlog to become 0", func(ctx context.Context) (bool, error) {
		var left int64
		err := b.Pool().QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&left)
		if err == nil && left > 0 && time.Since(began) > wakeUpTimeout {
			err = errors.New("wake-up lost: rows are left and no work is requested")
		}
		return left == 0, err
	})
}

// probe is a listener with a subscription that deletes due rows and counts its calls. Its
// regular queries and self-checks are switched off, so that only the wake-up protocol
// starts the work.
type probe struct {
	*listen.Subscription
	*listen.Timing

	b                  *bundle
	log                pgtest.Journal
	stop               func()
	queries, workCalls atomic.Int64
	// waitingCalls counts the calls of Work with wait set.
	waitingCalls atomic.Int64
	// work, if set, replaces the deletion of due rows. Its argument call counts from 1.
	work func(ctx context.Context, call int64) (time.Duration, error)
	// tracer, if set, traces the statements of the subscription.
	tracer pgx.QueryTracer
}

func newProbe(b *bundle) *probe {
	conn := pgtest.Must(pgx.ParseConfig(b.URL))(b.t)
	conn.RuntimeParams["application_name"] = listeners
	p := &probe{b: b}
	listener := &listen.Listener{
		Database: "main", Conn: conn, Pool: b.Pool(), Logger: p.log.Logger(),
		Timing: listen.Timing{
			MaxSleep: never, SelfCheck: never, SelfCheckWait: wakeUpTimeout, Answer: wakeUpTimeout, Poll: time.Millisecond,
			Reconnect: time.Millisecond, LockTimeout: 2 * time.Millisecond, BarrierPoll: time.Millisecond,
			BarrierPollMax: 4 * time.Millisecond,
		},
	}
	p.Timing = &listener.Timing
	p.Subscription = &listen.Subscription{
		Kind: kind, Database: "main", Key1: b.key1, Key2: b.key2, Tables: []string{"public.idle", "public." + table},
		Due: p.due,
		Work: func(ctx context.Context, _ dbsqlc.DBTX, wait bool) (time.Duration, error) {
			call := p.workCalls.Add(1)
			if wait {
				p.waitingCalls.Add(1)
			}
			if p.work != nil {
				return p.work(ctx, call)
			}
			return p.deleteDue(ctx)
		},
	}
	listener.Add(p.Subscription)
	return p
}

func (p *probe) due(ctx context.Context, on listen.Querier, _ bool) (listen.Due, error) {
	// The query is counted when it has returned. After the query that precedes its sleep,
	// the subscription needs a wake-up to find further rows.
	defer p.queries.Add(1)
	var due listen.Due
	var seconds float64
	err := on.QueryRow(ctx, `
		SELECT coalesce(bool_or(consume_after <= clock_timestamp()), false),
		       coalesce(extract(epoch FROM min(consume_after) FILTER (WHERE consume_after > clock_timestamp()) - clock_timestamp()), 0)::float8
		FROM public.`+table).Scan(&due.Now, &seconds)
	due.In = max(0, time.Duration(seconds*float64(time.Second)))
	return due, err
}

func (p *probe) deleteDue(ctx context.Context) (time.Duration, error) {
	_, err := p.b.Pool().Exec(ctx, "DELETE FROM "+table+" WHERE consume_after <= clock_timestamp()")
	return 0, err
}

// stall stops all traffic on the open connections. It cuts them at the end of the test,
// because a pool would wait for them for 15 s when it closes.
func stall(t *testing.T, network *pgtest.Network) {
	t.Cleanup(func() { network.Cut(1) })
	network.Stall(1)
}

// start runs the listener and its subscription until stop is called or the test ends. The
// function stop waits until Run returns. The subscription's connections use the
// listener's dialer.
func (p *probe) start() {
	settings := pgtest.Must(pgxpool.ParseConfig(p.b.URL))(p.b.t)
	settings.ConnConfig.DialFunc, settings.ConnConfig.Tracer = p.Listener.Conn.DialFunc, p.tracer
	settings.ConnConfig.RuntimeParams["application_name"] = subscriptions
	p.Listener.Sessions = pgtest.Must(pgxpool.NewWithConfig(p.b.t.Context(), settings))(p.b.t)
	p.b.t.Cleanup(p.Listener.Sessions.Close)
	ctx, cancel := context.WithCancel(p.b.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Listener.Run(ctx)
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(wakeUpTimeout):
			require.Fail(p.b.t, "Run does not return")
		}
	})
	p.b.t.Cleanup(p.stop)
}

// awaitSleep starts a subscription without due rows and waits until it sleeps: it queries
// once before and once after the barrier.
func (p *probe) awaitSleep() {
	p.b.t.Helper()
	p.start()
	p.await("the subscription to fall asleep", func() bool { return p.queries.Load() >= 2 })
}

func (p *probe) await(what string, condition func() bool) {
	p.b.t.Helper()
	pgtest.WaitFor(p.b.t, what, func(context.Context) (bool, error) { return condition(), nil })
}

// gate makes the first call of Work wait until the returned function is called, so that
// the subscription stays awake. Further calls delete due rows.
func (p *probe) gate() (open func()) {
	gate := make(chan struct{})
	p.work = func(ctx context.Context, call int64) (time.Duration, error) {
		if call == 1 {
			select {
			case <-gate:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		return p.deleteDue(ctx)
	}
	return sync.OnceFunc(func() { close(gate) })
}

// wakeUp inserts a due row for a subscription with a gate and waits until the
// subscription holds the awake lock.
func (p *probe) wakeUp() {
	p.b.t.Helper()
	p.b.Exec(insert)
	p.await("the work to begin", func() bool { return p.workCalls.Load() == 1 })
	pgtest.WaitFor(p.b.t, "the awake lock", p.b.awake)
}

// connections returns the process IDs of the server sessions with the given
// application_name.
func (b *bundle) connections(name string) []int {
	b.t.Helper()
	return pgtest.Scalar[[]int](b.t, b.Database, `
		SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity
		WHERE application_name = $1 AND datname = current_database()`, name)
}

// logged returns the number of log messages that start with prefix.
func (p *probe) logged(prefix string) (count int) {
	for _, message := range p.log.Messages() {
		if strings.HasPrefix(message, prefix) {
			count++
		}
	}
	return count
}
