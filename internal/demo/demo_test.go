package demo

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/jobrun"
	"sexton/internal/pgtest"
)

// timeless is a summary without what depends on the clock.
func timeless(t *testing.T, s Summary) string {
	require.GreaterOrEqual(t, s.P99LatencyMS, s.P50LatencyMS)
	s.P50LatencyMS, s.P99LatencyMS, s.Seconds = 0, 0, 0
	for kind, job := range s.Jobs {
		job.Latency = jobrun.Percentiles{}
		s.Jobs[kind] = job
	}
	return string(pgtest.Must(json.Marshal(s))(t))
}

// worker stands by until it is told to end, and says whether it has.
type worker struct {
	ended atomic.Bool
	err   error
}

func (w *worker) work(ctx context.Context) error {
	<-ctx.Done()
	w.ended.Store(true)
	return w.err
}

func TestRunEndsWhenAllIsClean(t *testing.T) {
	t.Parallel()
	db := parentsIn(t)
	db.Exec(`
		INSERT INTO issues SELECT generate_series(1, 10);
		INSERT INTO notes SELECT id, id FROM generate_series(1, 10) AS id;
		ALTER TABLE notes ADD FOREIGN KEY (issue_id) REFERENCES issues ON DELETE CASCADE;
		INSERT INTO sexton.runs (kind, database, holder, stats, ended_at, outcome) VALUES
			('loose_foreign_keys_cleanup', 'main', 'test', '{"processed": 100, "delete_count_by_table": {"notes": 100}}', now(), 'done')`)
	site, w := testSite(t, db), worker{}
	var last State
	site.Work = func(ctx context.Context) error {
		db.Exec(`INSERT INTO sexton.runs (kind, database, holder, stats, ended_at, outcome) VALUES
			('loose_foreign_keys_cleanup', 'main', 'test', '{"processed": 6, "delete_count_by_table": {"notes": 6}}', now(), 'done')`)
		return w.work(ctx)
	}
	site.View = viewFunc(func(s State) { last = s })
	began := time.Now()
	summary := pgtest.Must(Run(t.Context(), site, true))(t)
	require.True(t, w.ended.Load())
	require.Positive(t, summary.P50LatencyMS)
	require.Positive(t, summary.Seconds)
	require.LessOrEqual(t, summary.Seconds, time.Since(began).Seconds())
	require.JSONEq(t, `{
		"rows_loaded": 17, "parents_deleted": 6, "children_deleted": 6, "children_nullified": 0, "children_updated": 0, "orphans_left": 0,
		"p50_latency_ms": 0, "p99_latency_ms": 0, "seconds": 0,
		"jobs": {"loose_foreign_keys_cleanup":
			{"acted": 6, "planned": 6, "waiting": 0, "p50_latency_ms": 0, "p99_latency_ms": 0, "check": {"orphans_left": 0},
			"runs": 1, "processed": 6, "rescheduled": 0, "delete_count_by_table": {"notes": 6}, "update_count_by_table": {}, "errors": 0}}
	}`, timeless(t, summary))
	require.True(t, last.Scenes[0].Done, "the last state is shown")
	require.EqualValues(t, 6, last.Scenes[0].Acted)
	require.EqualValues(t, 6, last.Scenes[0].Planned)
}

func TestRunReportsOrphans(t *testing.T) {
	t.Parallel()
	db := parentsIn(t)
	db.Exec(`
		INSERT INTO issues SELECT generate_series(1, 10);
		INSERT INTO notes SELECT id, 1 + id % 10 FROM generate_series(1, 30) AS id`)
	site, w := testSite(t, db), worker{}
	site.Work = w.work
	summary, err := Run(t.Context(), site, true)
	require.EqualError(t, err, "18 orphans are left")
	require.NotNil(t, summary.OrphansLeft)
	require.EqualValues(t, 18, *summary.OrphansLeft)
	require.EqualValues(t, 6, summary.ParentsDeleted)
	require.True(t, w.ended.Load())
}

func TestRunEndsWithAnErrorOfAnyPart(t *testing.T) {
	t.Parallel()
	unknown := errors.New("nobody knows")
	// atOnce is a worker that ends when something has been shown.
	atOnce := func(err error) func(*dbtest.DB, *Site) {
		return func(_ *dbtest.DB, site *Site) {
			shown := make(chan struct{})
			var first sync.Once
			site.View = viewFunc(func(State) { first.Do(func() { close(shown) }) })
			site.Work = func(context.Context) error { <-shown; return err }
		}
	}
	does := func(sql string) func(*dbtest.DB, *Site) { return func(db *dbtest.DB, _ *Site) { db.Exec(sql) } }
	for name, test := range map[string]struct {
		spoil func(db *dbtest.DB, site *Site)
		want  string
	}{
		"worker":               {atOnce(unknown), "the worker ended: nobody knows"},
		"worker without error": {atOnce(nil), "the worker ended: it was not told to"},
		"activity": {func(_ *dbtest.DB, site *Site) {
			site.Activity = func(context.Context, map[string]int64) (map[string]string, error) { return nil, unknown }
		}, "nobody knows"},
		"application":                  {does(failing + "'22012')"), "delete from issues: "},
		"application before it begins": {does("DROP TABLE web_hooks"), "count web_hooks: "},
		"tombstones":                   {does("DROP TABLE loose_foreign_keys_deleted_records"), "loose_foreign_keys_deleted_records"},
	} {
		for _, drain := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := parentsIn(t)
				db.Exec(`INSERT INTO issues SELECT generate_series(1, 5000)`)
				w := worker{err: errors.New("a worker that fails at its end hides no cause")}
				site := testSite(t, db)
				site.Work = w.work
				test.spoil(db, &site)
				summary, err := Run(t.Context(), site, drain)
				require.ErrorContains(t, err, test.want)
				require.NotErrorIs(t, err, context.Canceled)
				if strings.HasPrefix(name, "worker") {
					require.EqualError(t, err, test.want)
				} else {
					require.True(t, w.ended.Load(), "no worker is left")
				}
				require.Nil(t, summary.OrphansLeft)
				require.EqualValues(t, 17, summary.RowsLoaded)
			})
		}
	}
}

// Runs of a demo in which there is nothing to delete.
func TestRunOfNothing(t *testing.T) {
	t.Parallel()
	db := parentsIn(t)
	site := testSite(t, db)
	site.Work = func(ctx context.Context) error {
		<-ctx.Done()
		db.Exec(`INSERT INTO sexton.runs (kind, database, holder, stats, ended_at, outcome) VALUES
			('loose_foreign_keys_cleanup', 'main', 'test', '{"processed": 7}', now(), 'done')`)
		return nil
	}
	summary := pgtest.Must(Run(t.Context(), site, true))(t)
	require.EqualValues(t, 7, summary.Jobs[testKind].Tally.Numbers["processed"], "the worker tells of it last")

	w := worker{err: errors.New("stuck")}
	site.Work = w.work
	_, err := Run(t.Context(), site, true)
	require.EqualError(t, err, "stop worker: stuck")

	w.err = nil
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Run(over, site, true)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Run(over, site, false)
	require.NoError(t, err, "the end of the context is how a demo ends")

	db.Exec("DROP TABLE notes")
	summary, err = Run(t.Context(), site, true)
	require.ErrorContains(t, err, "count orphans of issues in notes: ")
	require.Nil(t, summary.OrphansLeft)
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]bool{"no error without drain": false, "an error with drain": true}, func(t *testing.T, _ string, drain bool) {
		db := parentsIn(t)
		db.Exec(`INSERT INTO issues SELECT generate_series(1, 5000)`)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		site := testSite(t, db)
		var toldEarly, ended atomic.Bool
		begun := make(chan context.Context, 1)
		site.Work = func(working context.Context) error {
			begun <- working
			<-working.Done()
			ended.Store(true)
			return nil
		}
		site.View = viewFunc(func(s State) {
			if s.Scenes[0].Acted > 0 && ctx.Err() == nil {
				cancel()
				// While this is shown others are still at work.
				toldEarly.Store((<-begun).Err() != nil)
			}
		})
		summary, err := Run(ctx, site, drain)
		if drain {
			require.ErrorIs(t, err, context.Canceled)
		} else {
			require.NoError(t, err)
		}
		require.True(t, ended.Load())
		require.False(t, toldEarly.Load(), "the worker ends last")
		require.Positive(t, summary.ParentsDeleted)
		require.Nil(t, summary.OrphansLeft, "what is not drained has no count")
	})
}
