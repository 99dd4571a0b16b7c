package jobrun_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

const insertCount = "INSERT INTO sexton.run_counts (run_id, backend, field, label, rows) VALUES ($1, $2, $3, $4, $5)"

// withDead is setup with a second database, and a run that died with counts in both.
func withDead(t *testing.T) (bundle, *dbtest.DB) {
	b := setup(t)
	b.runner.Figures = figures
	ci := dbtest.New(t)
	ci.Connected.Name = "ci"
	b.spec.Fences = append(b.spec.Fences, ci.Connected)
	b.db.Exec(`INSERT INTO sexton.runs (kind, database, holder, started_at, stats) VALUES ('some_kind', 'main', 'dead', clock_timestamp() - interval '6 minutes',
		'{"processed": 1, "delete_count": 2, "delete_count_by_table": {"notes": 2}, "pace": "normal"}')`)
	b.db.Exec(insertCount, 1, 10, "delete_count_by_table", "notes", 5)
	b.db.Exec(insertCount, 1, 11, "delete_count_by_table", "notes", 2)
	b.db.Exec(`UPDATE sexton.run_counts SET others = '[{"field": "processed", "label": "parents", "rows": 1}, {"field": "processed", "label": "parents", "rows": 2}]'
		WHERE backend = 11`)
	b.db.Exec(insertCount, 1, 10, "users_processed", "", 8)
	ci.Exec(insertCount, 1, 10, "delete_count_by_table", "notes", 4)
	ci.Exec(insertCount, 1, 10, "delete_count_by_table", "issues", 1)
	return b, ci
}

func figures(kind string) map[string]string {
	return map[string]string{
		"delete_count_by_table": kind + " deletions", "processed": kind + " parents", "users_processed": kind + " users", "deleted": kind + " rows",
		"nullified": "",
	}
}

const (
	deadStats = `SELECT stats::jsonb - 'pace' FROM sexton.runs WHERE id = 1`
	allCounts = "SELECT count(*) FROM sexton.run_counts"
	whole     = `{"processed": 3, "users_processed": 8, "delete_count": 12, "delete_count_by_table": {"notes": 11, "issues": 1}}`
)

func TestCountsOfADeadRunAreAdded(t *testing.T) {
	t.Parallel()

	b, ci := withDead(t)
	var o observed
	b.runner.Observer = &o
	for range 2 {
		b.pass(t, busy)
		require.JSONEq(t, whole, b.db.Rows(deadStats)[0][0])
		require.Equal(t, []string{"failed", "t", "1", "3", abandoned}, b.runs()[0])
		require.Zero(t, pgtest.Scalar[int64](t, b.db.Database, allCounts))
		require.Zero(t, pgtest.Scalar[int64](t, ci.Database, allCounts))
	}
	require.ElementsMatch(t, []jobrun.Count{
		{Metric: "some_kind deletions", Table: "notes", N: 7},
		{Metric: "some_kind deletions", Table: "notes", N: 4},
		{Metric: "some_kind deletions", Table: "issues", N: 1},
		{Metric: "some_kind parents", Table: "parents", N: 3},
		{Metric: "some_kind users", N: 8},
	}, o.added)
}

// The counts are removed after they have been added, in another database. What happens in between adds nothing twice, and
// loses nothing that a batch commits late.
func TestCountsAreAddedOnce(t *testing.T) {
	t.Parallel()

	b, ci := withDead(t)
	ci.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'killed'; END $$`)
	ci.Exec("CREATE TRIGGER refuse BEFORE DELETE ON sexton.run_counts FOR EACH STATEMENT EXECUTE FUNCTION refuse()")
	_, err := b.runner.Do(t.Context(), b.spec, busy)
	require.NoError(t, err, "it is tried again")
	require.Contains(t, b.log.String(), "counts of runs cannot be added to their statistics yet")
	require.JSONEq(t, whole, b.db.Rows(deadStats)[0][0])

	ci.Exec("DROP TRIGGER refuse ON sexton.run_counts; UPDATE sexton.run_counts SET rows = rows + 20 WHERE label = 'issues'")
	var passes sync.WaitGroup
	for n := range 4 {
		other := &jobrun.Runner{Leases: &lease.Manager{Jobs: b.db.Connected, Holder: "other"}, Logger: b.runner.Logger, Figures: figures}
		spec := b.spec
		spec.Shared, spec.LeaseKey = true, fmt.Sprintf("some/key/%d", n)
		passes.Go(func() {
			_, err := other.Do(t.Context(), spec, idle)
			if err != nil {
				t.Error(err)
			}
		})
	}
	passes.Wait()
	require.JSONEq(t, `{"processed": 3, "users_processed": 8, "delete_count": 32, "delete_count_by_table": {"notes": 11, "issues": 21}}`,
		b.db.Rows(deadStats)[0][0])
	require.Zero(t, pgtest.Scalar[int64](t, ci.Database, allCounts))
}

// A run that ends well knows what it did. One that failed may not: the answer to its last COMMIT may be lost.
func TestCountsOfARunThatEnds(t *testing.T) {
	t.Parallel()

	b, ci := withDead(t)
	for _, fails := range []error{nil, errors.New("connection lost")} {
		report, err := b.runner.Do(t.Context(), b.spec, func(_ context.Context, granted *lease.Lease, _ jobrun.Progress) (jobrun.Result, error) {
			b.db.Exec(insertCount, granted.Run(), 10, "deleted", "notes", 5)
			ci.Exec(insertCount, granted.Run(), 10, "deleted", "issues", 6)
			return jobrun.Result{Outcome: jobrun.Done, Changed: true, Stats: map[string]map[string]int{"deleted": {"notes": 4, "issues": 7, "lost": 1}, "nullified": {"lost": 2}}}, fails
		})
		require.ErrorIs(t, err, fails)
		want := `{"deleted": {"notes": 4, "issues": 7, "lost": 1}, "nullified": {"lost": 2}}`
		if fails != nil {
			want = `{"deleted": {"notes": 5, "issues": 6}, "nullified": {}}`
		}
		require.JSONEq(t, want, b.db.Rows("SELECT stats FROM sexton.runs WHERE id = $1", report.RunID)[0][0])
		require.Zero(t, pgtest.Scalar[int64](t, b.db.Database, allCounts))
		require.Zero(t, pgtest.Scalar[int64](t, ci.Database, allCounts))
	}
	ci.Exec(insertCount, 999, 10, "deleted", "notes", 5)
	_, err := b.runner.Do(t.Context(), b.spec, func(context.Context, *lease.Lease, jobrun.Progress) (jobrun.Result, error) {
		return jobrun.Result{}, errors.New("again")
	})
	require.Error(t, err)
	require.Contains(t, b.log.String(), "counts of a run that is not in the history are dropped")
	require.Zero(t, pgtest.Scalar[int64](t, ci.Database, allCounts))
}

// A process that stood still finds, when it goes on, that another one has closed its run and handed its counts on. What that one has told the metrics
// is not told again, whether the run then fails or, without another batch, ends well.
func TestCountsOfARunThatWasTakenForDead(t *testing.T) {
	t.Parallel()

	b, _ := withDead(t)
	confirmed, late := jobrun.Count{Metric: "confirmed", N: 1}, jobrun.Count{Metric: "some_kind rows", Table: "late", N: 2}
	for fails, want := range map[error][]jobrun.Count{lease.ErrLost: {confirmed}, nil: {confirmed, late}} {
		var first, second observed
		b.runner.Observer = &first
		other := &jobrun.Runner{
			Leases: &lease.Manager{Jobs: b.db.Connected, Holder: "other"}, Logger: b.runner.Logger, Figures: figures, Observer: &second,
		}
		report, err := b.runner.Do(t.Context(), b.spec, func(_ context.Context, granted *lease.Lease, _ jobrun.Progress) (jobrun.Result, error) {
			b.db.Exec(insertCount, granted.Run(), 10, "deleted", "notes", 5)
			b.db.Exec("UPDATE sexton.leases SET expires_at = '-infinity'")
			pgtest.Must(other.Do(t.Context(), b.spec, idle))(t)
			b.db.Exec(insertCount, granted.Run(), 10, "deleted", "late", 2)
			counts := []jobrun.Count{{Metric: "some_kind rows", Table: "notes", N: 5}, confirmed, late}
			return jobrun.Result{Outcome: jobrun.Done, Changed: true, Stats: map[string]map[string]int{"deleted": {"notes": 5, "late": 2}}, Counts: counts}, fails
		})
		require.ErrorIs(t, err, fails)
		require.JSONEq(t, `{"deleted": {"notes": 5, "late": 2}}`, b.db.Rows("SELECT stats FROM sexton.runs WHERE id = $1", report.RunID)[0][0])
		require.Contains(t, second.added, jobrun.Count{Metric: "some_kind rows", Table: "notes", N: 5})
		require.ElementsMatch(t, want, first.ended[0].Counts)
		require.Equal(t, fails != nil, len(first.added) == 1, "the rest of a run that failed is told as it is handed on")
		require.Zero(t, pgtest.Scalar[int64](t, b.db.Database, allCounts))
	}
}

// A pass without its lease cannot hand on what batches have counted, and leaves that to the next one.
func TestASkippedPassPutsOffNoCounts(t *testing.T) {
	t.Parallel()

	b, ci := withDead(t)
	b.db.Exec("UPDATE sexton.runs SET ended_at = now(), outcome = 'failed', counted = '{}'")
	other := pgtest.Must((&lease.Manager{Jobs: b.db.Connected, Holder: "other"}).Acquire(t.Context(), b.spec.LeaseKey, time.Minute))(t)
	b.pass(t, idle)
	require.NoError(t, other.Release(t.Context()))
	b.pass(t, idle)
	require.JSONEq(t, whole, b.db.Rows(deadStats)[0][0])
	require.Zero(t, pgtest.Scalar[int64](t, ci.Database, allCounts))
}

// A run that lost the answer to a COMMIT, and found nothing left to do, has counts and does not know of a change.
func TestARunWithCountsIsNotFolded(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.db.Exec("INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome) VALUES ('some_kind', 'main', 'test', now() + interval '1 hour', now(), 'done')")
	report, err := b.runner.Do(t.Context(), b.spec, func(ctx context.Context, granted *lease.Lease, progress jobrun.Progress) (jobrun.Result, error) {
		b.db.Exec(insertCount, granted.Run(), 10, "deleted", "notes", 5)
		return idle(ctx, granted, progress)
	})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"done", "t"}}, b.db.Rows("SELECT outcome, changed FROM sexton.runs WHERE id = $1", report.RunID))
	require.Zero(t, pgtest.Scalar[int64](t, b.db.Database, allCounts))
}

// A process reads the counts of a run, which ends, removes its counts and leaves the history before the process looks there.
func TestCountsThatARunHasRemovedItselfAreNotCalledDropped(t *testing.T) {
	t.Parallel()

	b, _ := withDead(t)
	ending := pgtest.Begin(t, b.db.Connected.Pool, "WITH told AS (DELETE FROM sexton.run_counts WHERE run_id = 1) DELETE FROM sexton.runs WHERE id = 1")
	var other sync.WaitGroup
	other.Go(func() {
		spec := b.spec
		spec.Kind, spec.Fences = "another_kind", b.spec.Fences[:1]
		_, err := b.runner.Do(t.Context(), spec, busy)
		if err != nil {
			t.Error(err)
		}
	})
	pgtest.Await(t, b.db.Database, "the look for the run",
		"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ~ 'name: RunEnded')")
	require.NoError(t, ending.Commit(t.Context()))
	other.Wait()
	require.Contains(t, b.log.String(), "run_ended kind=another_kind")
	require.NotContains(t, b.log.String(), "level=WARN")
}
