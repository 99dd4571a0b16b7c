package integration

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/config"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/pgtest"
	riverjobs "sexton/river_jobs"
)

// TestDifferential draws schemas, rows and workloads, and runs them in two databases: one
// with native foreign keys, and one with definitions and a worker. During the worker's
// runs, other sessions hold locks on affected rows and insert children of parents that
// the worker has already cleaned up. After all sessions have ended, both databases must
// have equal rows, and no tombstone or recheck may be left. The type scenario describes
// how late children are compared.
//
// A failure prints the flags that replay it: -run with the name of its shape, and
// -rapid.seed.
func TestDifferential(t *testing.T) {
	t.Parallel()
	ownNumber := drawMore(t)
	total := newMix()
	t.Cleanup(func() { total.check(t) })
	pgtest.Each(t, map[string]shape{
		"integer keys": {share: 3, tables: []int{3, 2, 4, 5}, keys: keyKinds()[:3]},
		"partitions and keys of all types": {
			share: 2, tables: []int{3, 4, 2, 5, 6}, keys: keyKinds(),
			partitions: true,
		},
		"up to 12 tables": {
			share: 1, tables: []int{7, 8, 9, 10, 11, 12}, keys: keyKinds(),
			partitions: true,
		},
	}, func(t *testing.T, _ string, s shape) {
		l := newPair(t)
		for n := 0; n == 0 || n < s.share && ownNumber; n++ {
			rapid.Check(t, func(rt *rapid.T) { l.check(rt, s) })
		}
		l.mix.report(t)
		total.merge(l.mix)
	})
}

// drawMore sets the number of schemas and returns true, unless flags set a number, a seed
// or a file.
func drawMore(t *testing.T) bool {
	given := false
	flag.Visit(func(f *flag.Flag) {
		given = given || slices.Contains([]string{"rapid.checks", "rapid.seed", "rapid.failfile"}, f.Name)
	})
	if !given {
		require.NoError(t, flag.Set("rapid.checks", fmt.Sprint(schemasPerShare)))
	}
	return !given
}

// pair is a pair of databases that is used for one schema after the other, with its
// sessions.
type pair struct {
	ctx    context.Context //nolint:containedctx // the test's context, for code without a *testing.T
	name   string
	worker *worker
	defs   []definitions.Definition
	// main and native are the connections that run the workload. The connection watcher
	// reads locks. The connections in overlapping run the sessions with overlapping
	// transactions.
	main, native, watcher *pgx.Conn
	overlapping           []*pgx.Conn
	// twoPhase is true if the server supports prepared transactions.
	twoPhase bool
	mix      *mix
	// logf logs to the test, because rapid may omit what is logged with rapid.T.
	logf func(format string, args ...any)
}

func newPair(t *testing.T) *pair {
	ours, native := dbtest.New(t).Database, pgtest.New(t)
	l := &pair{
		ctx: t.Context(), name: ours.Name, worker: newWorker(t, ours, "worker", slog.New(slog.DiscardHandler), nil),
		main: connectQuietly(t, ours.URL), native: connectQuietly(t, native.URL), watcher: connectQuietly(t, ours.URL),
		mix: newMix(), logf: t.Logf,
	}
	// Pauses between statements do not change the result. The lock timeout is as long as
	// possible, because on a busy machine the test may end the blocking session late.
	l.worker.config.LooseForeignKeys.Duty = 100
	// On a busy machine the sessions of the test may not run for as long as the default
	// timeout.
	l.worker.config.Jobs.StatementTimeout *= 4
	l.worker.config.Jobs.LockTimeout = l.worker.config.Jobs.StatementTimeout
	// A longer run also has a longer lease, so that a statement reaches its timeout
	// before the lease ends.
	l.worker.config.Databases[0].Limits.Runtime = 50 * time.Second
	for range 4 {
		l.overlapping = append(l.overlapping, connectQuietly(t, ours.URL))
	}
	var most int
	require.NoError(t,
		l.main.QueryRow(l.ctx, "SELECT current_setting('max_prepared_transactions')::integer").Scan(&most))
	l.twoPhase = most > 0
	pgtest.Must(l.native.Exec(l.ctx, emulation))(t)
	return l
}

// connect opens a connection, which is closed when the test ends. Statements use the
// simple protocol, because each case has other tables.
func connect(t *testing.T, url string) *pgx.Conn {
	settings := pgtest.Must(pgx.ParseConfig(url))(t)
	settings.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return pgtest.ConnectAs(t, settings)
}

// connectQuietly opens a connection like connect without notices. Dropping a schema would
// send one for each table.
func connectQuietly(t *testing.T, url string) *pgx.Conn {
	conn := connect(t, url)
	pgtest.Exec(t, conn, "SET client_min_messages = warning")
	return conn
}

// check draws a schema and runs several cases on it. Each case adds rows, runs a
// workload, sessions and the worker, and compares the databases.
func (l *pair) check(rt *rapid.T, s shape) {
	c := &scenario{pair: l, rt: rt, schema: drawSchema(rt, s), referred: map[rowID]bool{}}
	l.clear(c)
	l.mix.clock("create")
	defer l.mix.clock("")
	c.exec(l.native, "native", c.schema.create()+c.schema.constrain())
	c.exec(l.main, "ours", c.schema.create())
	for _, conn := range []*pgx.Conn{l.main, l.native} {
		c.exec(conn, "prepare", "DEALLOCATE ALL;\n"+c.schema.content()+";\n"+c.schema.orphans())
	}
	l.worker.config.Databases[0].Pace = rapid.SampledFrom([]config.Pace{
		config.Adaptive, config.Normal,
		config.Turbo,
	}).Draw(rt, "pace")
	l.worker.config.LooseForeignKeys.Connections = rapid.IntRange(1, 4).Draw(rt, "connections")
	l.worker.bindings = &riverjobs.Bindings{}
	l.defs = c.schema.definitions(rt)
	l.mix.clock("install triggers")
	l.worker.track(l.ctx, rt, l.defs)
	for range drawCases(rt) {
		if rapid.Bool().Draw(rt, "reuse 1") && rapid.Bool().Draw(rt, "reuse 2") && rapid.Bool().Draw(rt, "reuse 3") {
			l.mix.clock("reuse keys")
			c.checkReusedKeys()
			l.mix.cases++
			continue
		}
		l.mix.clock("workload")
		c.fill()
		c.workload()
		l.mix.clock("draw sessions")
		x := c.drawInterleaving()
		l.mix.clock("interleave with the worker")
		x.run()
		l.mix.clock("compare")
		c.compare()
		l.mix.cases++
	}
	l.mix.clock("run without work")
	stats := c.runPass(nil)
	require.False(rt, stats.Changed(), "a run without work must change nothing, but: %+v", stats)
	c.compare()
	l.mix.describe(c.schema, l.worker.config.Databases[0].Pace)
}

// drawCases draws the number of cases of a schema. Creating a schema costs as much as
// several cases.
func drawCases(rt *rapid.T) int {
	cases := 1
	// The number is a sum of terms that are drawn one by one, because ranges of rapid
	// favor small numbers.
	for _, more := range []int{8, 5, 3} {
		if rapid.Bool().Draw(rt, "more cases") {
			cases += more
		}
	}
	return cases
}

// clear rolls back the transactions of a case that failed. Every tenth time it resets the
// worker's pool, because every DDL statement is checked against all prepared statements
// of earlier cases.
func (l *pair) clear(c *scenario) {
	for _, conn := range append([]*pgx.Conn{l.main, l.native}, l.overlapping...) {
		if conn.PgConn().TxStatus() != 'I' {
			c.exec(conn, "clear", "ROLLBACK")
		}
	}
	found := pgtest.Must(l.main.Query(l.ctx,
		"SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"))(c.rt)
	for _, name := range pgtest.Must(pgx.CollectRows(found, pgx.RowTo[string]))(c.rt) {
		c.exec(l.main, "clear", "ROLLBACK PREPARED "+quoteText(name))
	}
	c.exec(l.main, "clear", "DELETE FROM public.loose_foreign_keys_deleted_records; DELETE FROM sexton.swept")
	if l.mix.schemas%10 == 0 {
		l.worker.db.Pool.Reset()
	}
}
