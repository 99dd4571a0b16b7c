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
	// never is longer than any test: what waits so long is switched off.
	never = time.Hour
	// patience is how long a wake-up may take until it counts as lost.
	patience = 20 * time.Second
	// listeners is the application_name of listening connections, subscriptions the one
	// of those which subscriptions are awake on.
	listeners, subscriptions = "listener", "subscription"
)

// bundle is a database with tombstones that wake a kind, and with tracked parents.
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

// hold takes the awake lock in a session of its own, in shared mode or not.
func (b *bundle) hold(mode string) *pgx.Conn {
	b.t.Helper()
	conn := b.connect()
	execute(b.t, conn, "SELECT pg_advisory_lock"+mode+"($1::int, $2::int)", b.key1, b.key2)
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}

// awake reports whether somebody holds the awake lock exclusively.
func (b *bundle) awake(ctx context.Context) (held bool, err error) {
	err = b.Pool().QueryRow(ctx, `
		SELECT EXISTS (
			SELECT FROM pg_locks
			WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted
			  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			  AND classid = $1::int::oid AND objid = $2::int::oid)`, b.key1, b.key2).Scan(&held)
	return held, err
}

// requireDrained waits until nothing is left.
func (b *bundle) requireDrained() {
	b.t.Helper()
	began := time.Now()
	pgtest.WaitFor(b.t, "the backlog to become 0", func(ctx context.Context) (bool, error) {
		var left int64
		err := b.Pool().QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&left)
		if err == nil && left > 0 && time.Since(began) > patience {
			err = errors.New("wake-up lost: rows are left and nobody comes")
		}
		return left == 0, err
	})
}

// probe is a listener with a subscription that deletes what is due, without any safety
// net, and that can be looked at.
type probe struct {
	*listen.Subscription
	*listen.Timing

	b            *bundle
	log          pgtest.Journal
	stop         func()
	looks, works atomic.Int64
	// waits counts the works that were waited for.
	waits atomic.Int64
	// work, if set, replaces deleting; call counts from 1.
	work func(ctx context.Context, call int64) (time.Duration, error)
	// tracer, if set, traces the subscription's statements.
	tracer pgx.QueryTracer
}

func newProbe(b *bundle) *probe {
	conn := pgtest.Must(pgx.ParseConfig(b.URL))(b.t)
	conn.RuntimeParams["application_name"] = listeners
	p := &probe{b: b}
	listener := &listen.Listener{
		Database: "main", Conn: conn, Pool: b.Pool(), Logger: p.log.Logger(),
		Timing: listen.Timing{
			MaxSleep: never, SelfCheck: never, SelfCheckWait: patience, Answer: patience, Poll: time.Millisecond,
			Reconnect: time.Millisecond, LockTimeout: 2 * time.Millisecond, BarrierPoll: time.Millisecond,
			BarrierPollMax: 4 * time.Millisecond,
		},
	}
	p.Timing = &listener.Timing
	p.Subscription = &listen.Subscription{
		Kind: kind, Database: "main", Key1: b.key1, Key2: b.key2, Tables: []string{"public.idle", "public." + table},
		Due: p.due,
		Work: func(ctx context.Context, _ dbsqlc.DBTX, wait bool) (time.Duration, error) {
			call := p.works.Add(1)
			if wait {
				p.waits.Add(1)
			}
			if p.work != nil {
				return p.work(ctx, call)
			}
			return p.erase(ctx)
		},
	}
	listener.Add(p.Subscription)
	return p
}

func (p *probe) due(ctx context.Context, on listen.Querier, _ bool) (listen.Due, error) {
	// Counted when it has seen what there is: what comes in after the look that ends in
	// sleep, wakes.
	defer p.looks.Add(1)
	var due listen.Due
	var seconds float64
	err := on.QueryRow(ctx, `
		SELECT coalesce(bool_or(consume_after <= clock_timestamp()), false),
		       coalesce(extract(epoch FROM min(consume_after) FILTER (WHERE consume_after > clock_timestamp()) - clock_timestamp()), 0)::float8
		FROM public.`+table).Scan(&due.Now, &seconds)
	due.In = max(0, time.Duration(seconds*float64(time.Second)))
	return due, err
}

func (p *probe) erase(ctx context.Context) (time.Duration, error) {
	_, err := p.b.Pool().Exec(ctx, "DELETE FROM "+table+" WHERE consume_after <= clock_timestamp()")
	return 0, err
}

// stall stalls the open connections, and cuts them before the pools close, which would
// wait 15 s for them.
func stall(t *testing.T, network *pgtest.Network) {
	t.Cleanup(func() { network.Cut(1) })
	network.Stall(1)
}

// start runs the listener, and the subscription with it, until stop is called or the test
// ends; stop waits for its end. The subscription's sessions go the listener's way to the
// server.
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
		case <-time.After(patience):
			require.Fail(p.b.t, "the subscription does not stop")
		}
	})
	p.b.t.Cleanup(p.stop)
}

// awaitSleep starts a subscription with nothing to do and waits until it sleeps: it looks
// once before the barrier and once behind it.
func (p *probe) awaitSleep() {
	p.b.t.Helper()
	p.start()
	p.await("the subscription to go to sleep", func() bool { return p.looks.Load() >= 2 })
}

func (p *probe) await(what string, condition func() bool) {
	p.b.t.Helper()
	pgtest.WaitFor(p.b.t, what, func(context.Context) (bool, error) { return condition(), nil })
}

// gate makes the first call of the work wait until the returned function is called, so
// that the subscription is awake for so long. Later calls delete.
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
		return p.erase(ctx)
	}
	return sync.OnceFunc(func() { close(gate) })
}

// wakeUp gives a subscription with a gate work and waits until it holds the awake lock.
func (p *probe) wakeUp() {
	p.b.t.Helper()
	p.b.Exec(insert)
	p.await("the work to begin", func() bool { return p.works.Load() == 1 })
	pgtest.WaitFor(p.b.t, "the awake lock", p.b.awake)
}

// connections returns the server processes of listeners, or of subscriptions.
func (b *bundle) connections(name string) []int {
	b.t.Helper()
	return pgtest.Scalar[[]int](b.t, b.Database, `
		SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity
		WHERE application_name = $1 AND datname = current_database()`, name)
}

// logged returns how many messages begin with a text.
func (p *probe) logged(prefix string) (count int) {
	for _, message := range p.log.Messages() {
		if strings.HasPrefix(message, prefix) {
			count++
		}
	}
	return count
}
