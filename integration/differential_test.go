package integration

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/config"
	"sexton/internal/dbtest"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// TestDifferential draws schemas, rows and workloads and runs them in two databases: one whose foreign keys
// are Postgres's own, and one with definitions and a worker. After one pass, during which other sessions
// hold locks on rows that it has to clean, both must be equal and no tombstone left. The pace is drawn, too.
//
// rapid prints the seed of a failure; -rapid.seed replays it.
func TestDifferential(t *testing.T) {
	t.Parallel()
	drawMore(t)
	t.Run("integer keys", func(t *testing.T) {
		t.Parallel()
		tw := newTwins(t)
		rapid.Check(t, func(rt *rapid.T) { tw.check(rt, shape{keys: keyKinds()[:2]}) })
	})
	t.Run("partitions and keys of all types", func(t *testing.T) {
		t.Parallel()
		tw := newTwins(t)
		rapid.Check(t, func(rt *rapid.T) { tw.check(rt, shape{keys: keyKinds(), partitions: true}) })
	})
}

// drawMore raises the number of cases of each shape over rapid's own, unless -rapid.checks says how many.
func drawMore(t *testing.T) {
	t.Helper()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		require.NoError(t, flag.Set("rapid.checks", "150"))
	}
}

// twins are the two databases, used for one case after the other.
type twins struct {
	ctx    context.Context //nolint:containedctx // the test's, for code that has no test at hand
	worker *worker
	// ours and native run the workload, watcher looks on, holders keep rows locked while the worker works.
	ours, native, watcher *pgx.Conn
	holders               []*pgx.Conn
}

func newTwins(t *testing.T) *twins {
	t.Helper()
	ours, native := dbtest.New(t).Database, pgtest.New(t)
	tw := &twins{
		ctx: t.Context(), worker: newWorker(t, ours, "worker", slog.New(slog.DiscardHandler), nil),
		ours: connect(t, ours.URL), native: connect(t, native.URL), watcher: connect(t, ours.URL),
	}
	for range 3 {
		tw.holders = append(tw.holders, connect(t, ours.URL))
	}
	return tw
}

// connect opens a session that the test closes at its end. Statements go out as plain text, since each case
// has tables of its own.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	settings, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	settings.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), settings)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}

// check runs one case.
func (tw *twins) check(rt *rapid.T, s shape) {
	c := &scenario{twins: tw, rt: rt, schema: drawSchema(rt, s)}
	// A case that failed half-way leaves its transactions open.
	for _, conn := range append([]*pgx.Conn{tw.ours, tw.native}, tw.holders...) {
		if conn.PgConn().TxStatus() != 'I' {
			c.exec(conn, "rollback", "ROLLBACK")
		}
	}
	script := c.schema.create() + c.schema.drawRows(rt)
	c.control(script)
	c.exec(tw.native, "native", c.schema.constrain())
	c.exec(tw.ours, "ours", "TRUNCATE public.loose_foreign_keys_deleted_records")
	paces := config.Pace("").Choices()
	tw.worker.config.Databases[0].Pace = config.Pace(rapid.SampledFrom(paces).Draw(rt, "pace"))
	defs := c.schema.definitions()
	tw.worker.track(tw.ctx, rt, defs)

	c.workload()
	held := c.conflicts()

	type ending struct {
		report jobrun.Report
		err    error
	}
	ended := make(chan ending, 1)
	go func() {
		report, err := tw.worker.run(tw.ctx, defs)
		ended <- ending{report, err}
		close(ended)
	}()
	end := releaseWhenAwaited(c, slices.Clone(held), ended)
	require.NoError(rt, end.err)
	require.Equal(rt, jobrun.Done, end.report.Outcome, "outcome, statistics %s", end.report.Stats)
	if slices.ContainsFunc(held, func(h hold) bool { return h.deletes }) {
		_, err := tw.worker.run(tw.ctx, defs)
		require.NoError(rt, err)
	}
	c.compare()

	again, err := tw.worker.run(tw.ctx, defs)
	require.NoError(rt, err)
	var stats loosefk.Stats
	require.NoError(rt, json.Unmarshal(again.Stats, &stats))
	require.False(rt, stats.Changed(), "a second run must change nothing, but: %s", again.Stats)
	c.compare()
}

// compare expects an empty backlog and equal tables.
func (c *scenario) compare() {
	var left int64
	require.NoError(c.rt, c.ours.QueryRow(c.ctx, backlogSQL).Scan(&left))
	require.Zero(c.rt, left, "tombstones are left after the run")
	require.Equal(c.rt, c.lines(c.native), c.lines(c.ours), "rows differ from what native foreign keys leave")
}

// lines are the rows that a session sees, as a failure is to show them.
func (c *scenario) lines(conn *pgx.Conn) []string {
	lines := []string{}
	for _, r := range c.rows(conn) {
		lines = append(lines, c.schema.tables[r.Table].name+" "+r.Text)
	}
	return lines
}
