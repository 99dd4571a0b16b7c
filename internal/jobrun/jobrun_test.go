package jobrun_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// abandoned is the error in the row of a run whose worker died.
const abandoned = "the worker died or lost its connection before this run could end"

func TestMain(m *testing.M) { pgtest.Main(m) }

type bundle struct {
	db     *dbtest.DB
	log    *bytes.Buffer
	runner *jobrun.Runner
	spec   jobrun.Spec
}

func setup(t *testing.T) bundle {
	db := dbtest.New(t)
	log := &bytes.Buffer{}
	return bundle{
		db: db, log: log,
		runner: &jobrun.Runner{
			Leases: &lease.Manager{Jobs: db.Connected, Holder: "test"},
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		},
		spec: jobrun.Spec{
			Kind: "some_kind", Database: "main", LeaseKey: "some/key", LeaseTTL: time.Minute,
			Fences: []database.Database{db.Connected},
		},
	}
}

func idle(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result, error) {
	return jobrun.Result{Stats: map[string]int{"processed": 0}}, nil
}

func busy(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result, error) {
	return jobrun.Result{Over: true, Stats: map[string]int{"processed": 7}, Changed: true, Processed: 7}, nil
}

// buggy is a Work that panics.
func buggy(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result, error) {
	return jobrun.Result{Reason: strings.Repeat("bug", -1)}, nil
}

// pass runs one pass and requires that Do returns no error.
func (b bundle) pass(t *testing.T, work jobrun.Work) {
	pgtest.Must(b.runner.Do(t.Context(), b.spec, work))(t)
}

func (b bundle) runs() [][]string {
	return b.db.Rows("SELECT outcome, changed, folded, coalesce(stats ->> 'processed', ''), coalesce(error, '') FROM sexton.runs ORDER BY id")
}

func TestPassIsRecorded(t *testing.T) {
	t.Parallel()

	b := setup(t)
	report := pgtest.Must(b.runner.Do(t.Context(), b.spec, busy))(t)
	require.Equal(t, jobrun.OverLimit, report.Outcome)
	require.JSONEq(t, `{"processed": 7}`, string(report.Stats))
	require.Equal(t, [][]string{{"over_limit", "t", "1", "7", ""}}, b.runs())
	require.Zero(t, pgtest.Scalar[int64](t, b.db.Database,
		"SELECT count(*) FROM sexton.leases WHERE expires_at > clock_timestamp()"), "the lease is released")
	require.Contains(t, b.log.String(), "msg=run_started kind=some_kind database=main")
	require.Contains(t, b.log.String(),
		"msg=run_ended kind=some_kind database=main run_id=1 processed=7 failed=0 duration_ms=")
}

func TestIdlePassesShareARow(t *testing.T) {
	t.Parallel()

	b := setup(t)
	for range 3 {
		b.pass(t, idle)
	}
	// Runs share a row within one minute, and the minute may change between the passes.
	require.EqualValues(t, 3, pgtest.Scalar[int64](t, b.db.Database, "SELECT sum(folded) FROM sexton.runs"))
	require.Equal(t,
		pgtest.Scalar[int64](t, b.db.Database,
			"SELECT count(DISTINCT date_trunc('minute', started_at)) FROM sexton.runs"),
		pgtest.Scalar[int64](t, b.db.Database, "SELECT count(*) FROM sexton.runs"))
	b.pass(t, busy)
	require.Equal(t, []string{"over_limit", "t", "1", "7", ""}, b.runs()[len(b.runs())-1], "a pass that changed something has its own row")
}

func TestPassIsSkippedIfTheLeaseIsHeld(t *testing.T) {
	t.Parallel()

	for holder, line := range map[string]string{
		"somebody": `level=ERROR msg="failed to obtain lock" kind=some_kind database=main run_id=1 error=FailedToObtainLockError key=some/key holder=somebody expires_at=`,
		lease.UndoHolder +
			"person": `level=INFO msg=waiting_for_undo kind=some_kind database=main run_id=1 key=some/key holder=undo:person expires_at=`,
	} {
		b := setup(t)
		other := lease.Manager{Jobs: b.db.Connected, Holder: holder}
		pgtest.Must(other.Acquire(t.Context(), b.spec.LeaseKey, time.Minute))(t)
		report, err := b.runner.Do(t.Context(), b.spec,
			func(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result, error) {
				t.Error("work ran without the lease")
				return jobrun.Result{}, nil
			})
		require.NoError(t, err, "a held lease is not a failure")
		require.Equal(t, jobrun.Skipped, report.Outcome)
		require.Equal(t, holder, report.Holder)
		require.Equal(t, "skipped", b.runs()[0][0])
		require.Contains(t, b.log.String(), line)
	}
}

// If an undo takes the lease of a running pass, the pass ends early without a failure. If
// another worker takes the lease, the pass fails.
func TestPassEndsEarlyIfAnUndoTakesItsLease(t *testing.T) {
	t.Parallel()
	for holder, want := range map[string]jobrun.Outcome{
		lease.UndoHolder + "person": jobrun.OverLimit,
		"worker":                    jobrun.Failed,
	} {
		b := setup(t)
		report, err := b.runner.Do(t.Context(), b.spec,
			func(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result, error) {
				b.db.Exec("UPDATE sexton.leases SET holder = $1, token = token + 1", holder)
				return jobrun.Result{Stats: map[string]int{"processed": 3}, Changed: true},
					fmt.Errorf("batch: %w", lease.ErrLost)
			})
		require.Equal(t, want, report.Outcome)
		require.Equal(t, want == jobrun.Failed, err != nil)
		require.Equal(t, want == jobrun.Failed, strings.Contains(b.log.String(), "level=ERROR"))
	}
}

func TestFailedPassKeepsItsStatistics(t *testing.T) {
	t.Parallel()

	b := setup(t)
	broken := errors.New("broken")
	report, err := b.runner.Do(t.Context(), b.spec, func(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result,
		error,
	) {
		return jobrun.Result{Stats: map[string]int{"processed": 3}, Changed: true}, broken
	})
	require.ErrorIs(t, err, broken)
	require.Equal(t, jobrun.Failed, report.Outcome)
	require.Equal(t, "broken", report.Error)
	require.Equal(t, [][]string{{"failed", "t", "1", "3", "broken"}}, b.runs())
	require.Contains(t, b.log.String(),
		"msg=run_failed kind=some_kind database=main run_id=1 processed=0 failed=0 duration_ms=")
	require.Contains(t, b.log.String(), "error=broken")
}

// A worker does not close open runs in every pass while it keeps the lease. It closes
// them immediately if another holder has had the lease in between.
func TestHistoryIsPrunedPeriodically(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.pass(t, busy)
	b.db.Exec("INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome) VALUES ('old', 'main', 'x', now() - interval '8 days', now(), 'done')")
	b.db.Exec("UPDATE sexton.runs SET ended_at = NULL, outcome = NULL WHERE kind = 'some_kind'")
	const open = "SELECT count(*) FROM sexton.runs WHERE ended_at IS NULL"
	b.pass(t, busy)
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, b.db.Database, open), "no other holder has had the lease")
	require.EqualValues(t, 3, pgtest.Scalar[int64](t, b.db.Database, "SELECT count(*) FROM sexton.runs"))

	other := lease.Manager{Jobs: b.db.Connected, Holder: "somebody"}
	require.NoError(t, pgtest.Must(other.Acquire(t.Context(), b.spec.LeaseKey, time.Minute))(t).Release(t.Context()))
	b.pass(t, busy)
	require.Zero(t, pgtest.Scalar[int64](t, b.db.Database, open), "another holder has had the lease, so the open run is closed")
}

// A run whose end could not be recorded, for example because the server was down, is
// closed by the next pass.
func TestRunThatCouldNotBeEndedIsClosed(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.pass(t, busy)
	_, err := b.runner.Do(t.Context(), b.spec, func(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result,
		error,
	) {
		b.db.Exec("ALTER TABLE sexton.runs RENAME TO away")
		return jobrun.Result{}, nil
	})
	require.ErrorContains(t, err, "record end of run")
	b.db.Exec("ALTER TABLE sexton.away RENAME TO runs")
	b.pass(t, busy)
	require.Equal(t, []string{"failed", "f", "1", "", abandoned}, b.runs()[1])
}

// A pass whose context ends during its work still records its end and releases its lease.
func TestStoppedPassIsRecorded(t *testing.T) {
	t.Parallel()

	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	pgtest.Must(b.runner.Do(ctx, b.spec, func(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result, error) {
		cancel()
		return jobrun.Result{Changed: true}, nil
	}))(t)
	require.Equal(t, "done", b.runs()[0][0])
	require.Zero(t, pgtest.Scalar[int64](t, b.db.Database,
		"SELECT count(*) FROM sexton.leases WHERE expires_at > clock_timestamp()"))
}

// A run that changed nothing commits asynchronously. A crash of the server can therefore
// undo the commit that released the lease.
func TestLeaseRevertedByACrashDoesNotBlockTheNextPass(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.pass(t, func(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result, error) {
		return jobrun.Result{}, nil
	})
	b.db.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp() + interval '2 hours'")
	require.Equal(t, jobrun.OverLimit, pgtest.Must(b.runner.Do(t.Context(), b.spec, busy))(t).Outcome)
}

// A pass that is stopped before it begins counts as skipped, not as failed.
func TestPassStoppedBeforeItBeginsIsSkipped(t *testing.T) {
	t.Parallel()

	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := b.runner.Do(ctx, b.spec, func(ctx context.Context, _ *lease.Lease, _ jobrun.Progress) (jobrun.Result,
		error,
	) {
		cancel()
		return jobrun.Result{}, ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled, "Do returns the error of the context")
	require.Equal(t, "skipped", b.runs()[0][0])
	require.Zero(t, pgtest.Scalar[int64](t, b.db.Database,
		"SELECT count(*) FROM sexton.leases WHERE expires_at > clock_timestamp()"))
}

func TestRunOfADeadWorkerIsClosed(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.db.Exec("INSERT INTO sexton.runs (kind, database, holder, started_at) VALUES ('some_kind', 'main', 'dead', clock_timestamp())")
	b.pass(t, busy)
	require.Equal(t, []string{"failed", "f", "1", "", abandoned}, b.runs()[0])
}

func TestOldHistoryIsRemoved(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.db.Exec("INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome) SELECT 'old', 'main', 'x', now() - interval '8 days', now(), 'done' FROM generate_series(1, 3)")
	b.db.Exec("INSERT INTO sexton.events (kind, payload, created_at) VALUES ('old', '{}', now() - interval '8 days'), ('new', '{}', now() - interval '6 days')")
	b.pass(t, busy)
	require.Len(t, b.runs(), 1)
	require.Equal(t, [][]string{{"new"}}, b.db.Rows("SELECT kind FROM sexton.events"))
}

// EventsPrune does not read the whole table of events if no event is old enough to be
// removed.
func TestEventsPruneReadsOnlyTheFirstEvents(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.db.Exec("INSERT INTO sexton.events (kind, payload) SELECT 'new', '{}' FROM generate_series(1, 20000); ANALYZE sexton.events")
	require.NoError(t, pgx.BeginFunc(t.Context(), b.db.Pool(), func(tx pgx.Tx) error {
		pgtest.Must(b.db.Connected.Names.Queries(tx).EventsPrune(t.Context()))(t)
		var read int64
		err := tx.QueryRow(t.Context(),
			"SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relid = 'sexton.events'::regclass").Scan(&read)
		require.Less(t, read, int64(2000))
		return err
	}))
}

func TestRunningPassShowsItsProgress(t *testing.T) {
	t.Parallel()

	b := setup(t)
	const stats = "SELECT coalesce(stats ->> 'processed', '') FROM sexton.runs"
	_, err := b.runner.Do(t.Context(), b.spec, func(ctx context.Context, _ *lease.Lease,
		progress jobrun.Progress,
	) (jobrun.Result, error) {
		n := 0
		pgtest.WaitFor(t, "progress in the row of the run", func(context.Context) (bool, error) {
			n++
			progress(ctx, map[string]int{"processed": n}, false)
			return b.db.Rows(stats)[0][0] != "", nil
		})
		require.Greater(t, n, 1, "the first call does not write")
		return jobrun.Result{Stats: map[string]int{"processed": -1}, Changed: true}, nil
	})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"-1"}}, b.db.Rows(stats))
}

// observed is an Observer that stores the passes it receives.
type observed struct{ ended []jobrun.Ended }

func (o *observed) RunEnded(ended jobrun.Ended) { o.ended = append(o.ended, ended) }

func TestEveryPassIsObserved(t *testing.T) {
	t.Parallel()

	b := setup(t)
	var o observed
	b.runner.Observer = &o
	counts := jobrun.Counts{"some": {"children": 3}}
	faults := []batch.FaultCounts{{Table: "children", SQLState: "55P03", Count: 1}}
	broken := errors.New("broken")
	for _, fails := range []error{nil, broken} {
		_, _ = b.runner.Do(t.Context(), b.spec, func(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result,
			error,
		) {
			return jobrun.Result{Over: true, Counts: counts, Faults: faults}, fails
		})
	}
	pgtest.Must((&lease.Manager{Jobs: b.db.Connected, Holder: "somebody"}).Acquire(t.Context(), b.spec.LeaseKey,
		time.Minute))(t)
	b.pass(t, idle)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.runner.Do(canceled, b.spec, idle)
	require.ErrorIs(t, err, context.Canceled, "the pass cannot begin")

	require.Len(t, o.ended, 4)
	for i, want := range []jobrun.Outcome{jobrun.OverLimit, jobrun.Failed, jobrun.Skipped, jobrun.Failed} {
		require.Equal(t, want, o.ended[i].Outcome, "pass %d", i)
		require.Equal(t, "some_kind", o.ended[i].Kind)
		require.Equal(t, "main", o.ended[i].Database)
		require.Equal(t, want == jobrun.Skipped, o.ended[i].LeaseTaken, "pass %d", i)
		require.Positive(t, o.ended[i].Duration)
	}
	require.Equal(t, counts, o.ended[0].Counts)
	require.Equal(t, faults, o.ended[1].Faults, "faults before the failure are reported")
	require.NoError(t, o.ended[0].Err)
	require.ErrorIs(t, o.ended[1].Err, broken)
	require.ErrorIs(t, o.ended[3].Err, context.Canceled)
}

func TestPassThatPanicsIsObservedAsFailed(t *testing.T) {
	t.Parallel()

	b := setup(t)
	var o observed
	b.runner.Observer = &o
	require.Panics(t, func() {
		_, _ = b.runner.Do(t.Context(), b.spec, buggy)
	})
	require.Len(t, o.ended, 1)
	require.Equal(t, jobrun.Failed, o.ended[0].Outcome)
}

// Concurrent passes do not close each other's runs. A run that has been open for too long
// is closed.
func TestSharedPassesCloseOnlyOldRuns(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.spec.Shared, b.spec.Long, b.spec.LeaseKey = true, true, "some/key/1"
	b.db.Exec(`INSERT INTO sexton.clients (client_id, host, pid) VALUES ('uploading', 'host', 1), ('test', 'host', 2)`)
	b.db.Exec(`INSERT INTO sexton.runs (kind, database, holder, started_at) VALUES
		('some_kind', 'main', 'alive', clock_timestamp()), ('some_kind', 'main', 'dead', clock_timestamp() - interval '6 minutes'),
		('some_kind', 'main', 'uploading', clock_timestamp() - interval '6 hours'),
		('some_kind', 'main', 'test', clock_timestamp() - interval '6 minutes')`)
	b.pass(t, busy)
	open, closed := []string{"NULL", "f", "1", "", ""}, []string{"failed", "f", "1", "", abandoned}
	require.Equal(t, [][]string{open, closed, open, closed}, b.runs()[:4],
		"an open run of this process that is not in progress is closed")

	b.spec.LeaseKey = ""
	pgtest.Must(b.runner.Do(t.Context(), b.spec, func(_ context.Context, granted *lease.Lease,
		_ jobrun.Progress,
	) (jobrun.Result, error) {
		require.Nil(t, granted)
		return jobrun.Result{Changed: true}, nil
	}))(t)
	require.Zero(t, pgtest.Scalar[int64](t, b.db.Database, "SELECT count(*) FROM sexton.leases WHERE key = ''"))
	require.Equal(t, "done", b.runs()[5][0])
}

func TestLongRunOfTheSameProcessIsNotClosed(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.spec.Shared, b.spec.Long, b.spec.LeaseKey = true, true, ""
	b.db.Exec(`INSERT INTO sexton.clients (client_id, host, pid) VALUES ('test', 'host', 1)`)
	b.pass(t, func(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result, error) {
		b.db.Exec("UPDATE sexton.runs SET started_at = clock_timestamp() - interval '6 minutes'")
		require.Panics(t, func() { // The panic makes the next pass search for open runs.
			_, _ = b.runner.Do(t.Context(), b.spec, buggy)
		})
		b.pass(t, busy)
		return jobrun.Result{Changed: true}, nil
	})
	require.Equal(t, [][]string{
		{"done", "t", "1", "", ""},
		{"NULL", "f", "1", "", ""},
		{"over_limit", "t", "1", "7", ""},
	}, b.runs())
}
