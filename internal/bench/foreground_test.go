package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/latency"
	"sexton/internal/pgtest"
)

func TestForegroundLoad(t *testing.T) {
	t.Parallel()
	set, db, conn := filled(t, newDataSet, Fanout, 0.005)
	l := &load{transaction: set.transaction}
	updated := "SELECT coalesce(sum(n), 0) FROM (SELECT count(*) AS n FROM children_01 WHERE xmin::text::bigint > $1 UNION ALL SELECT count(*) FROM children_20 WHERE xmin::text::bigint > $1) AS counts"
	require.NoError(t, l.during(t.Context(), db.URL, func(context.Context) error {
		now := pgtest.Scalar[int64](t, conn, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
		// More than there are clients, so that some were due after the beginning.
		pgtest.WaitFor(t, "clients to update children", func(ctx context.Context) (bool, error) {
			var n int
			err := conn.QueryRow(ctx, updated, now).Scan(&n)
			return n > 2*foregroundClients, err
		})
		return nil
	}))
	require.NotEmpty(t, l.times)
	require.Positive(t, l.busy)
	require.Positive(t, l.length)
	before := pgtest.Must(set.trial(0).look(t.Context(), conn))(t)
	require.Equal(t, set.rows, before["children_01"].referring, "the load moves no child")

	failed := errors.New("failed")
	require.ErrorIs(t, l.during(t.Context(), db.URL, func(context.Context) error { return failed }), failed)
	pgtest.Exec(t, conn, "DROP TABLE children_07")
	set.tables = []string{"children_07"}
	l.transaction = set.transaction
	require.ErrorContains(t, l.during(t.Context(), db.URL, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}), `relation "children_07" does not exist`)
}

// A load whose clients cannot keep up is told from one that is slow.
func TestCompareLoads(t *testing.T) {
	t.Parallel()
	rounds := func(times ...time.Duration) []*load {
		var all []*load
		for _, took := range times { // Every transaction takes all of the time from when it was due.
			all = append(all, &load{times: []time.Duration{took, took}, busy: 2 * took, length: time.Second})
		}
		return all
	}
	found := compareLoads([]string{undisturbed, sexton}, 30,
		map[string][]*load{undisturbed: rounds(time.Second, time.Second), sexton: rounds(2*time.Second, 8*time.Second)},
		map[string][]measured{sexton: {{took: time.Second, times: []time.Duration{time.Millisecond}}, {took: 3 * time.Second}}})
	require.Equal(t, []Foreground{
		{
			Contender: undisturbed, Transactions: 4, MS: latency.Percentiles{P50: 1000, P90: 1000, P99: 1000, Max: 1000},
			Busy: 25, RatioP50: 1, RatioP99: 1,
		},
		{
			Contender: sexton, Transactions: 4, MS: latency.Percentiles{P50: 2000, P90: 8000, P99: 8000, Max: 8000},
			Busy: 125, RatioP50: 2, RatioP99: 8,
			RowsPerSecond: 30, StatementMS: latency.Percentiles{P50: 1, P90: 1, P99: 1, Max: 1},
		},
	}, found)
}

func TestNoteTellsThatTheMachineIsCrowded(t *testing.T) {
	t.Parallel()
	note := func(busy float64) string {
		var text strings.Builder
		foregroundNote(&text, "all deleted", 30, []Foreground{{Busy: 20}, {Busy: 99}}, []Foreground{{Busy: busy}, {Busy: 99}})
		return text.String()
	}
	require.Contains(t, note(50), "all deleted, Sexton's duty 30 %\n")
	require.NotContains(t, note(50), "too busy")
	require.Contains(t, note(50.6), "the undisturbed load took 51 % of the clients' time")
}

func TestStillness(t *testing.T) {
	t.Parallel()
	for scale, want := range map[float64]time.Duration{0.001: shortCalm, 0.1: calm / 2, 0.2: calm, 3: calm} {
		require.Equal(t, want, stillness(scale), "scale %g", scale)
	}
}

func TestStopwatch(t *testing.T) {
	t.Parallel()
	settings := pgtest.Must(pgx.ParseConfig(pgtest.New(t).URL))(t)
	watch := childWatch()
	settings.Tracer = watch
	conn := pgtest.ConnectAs(t, settings)
	for _, statement := range []string{"CREATE TABLE children (id bigint)", "CREATE TABLE " + tombstones + " (id bigint)", "SELECT 1"} {
		pgtest.Exec(t, conn, statement)
	}
	children, queue := watch.take()
	require.Len(t, children, 1)
	require.Len(t, queue, 1)

	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue("DELETE FROM children WHERE id = $1", 1)
	batch.Queue("DELETE FROM " + tombstones)
	batch.Queue("COMMIT")
	require.NoError(t, conn.SendBatch(t.Context(), batch).Close())
	children, queue = watch.take()
	require.Len(t, children, 1, "a transaction counts once")
	require.Empty(t, queue)
	require.Positive(t, children[0])
}
