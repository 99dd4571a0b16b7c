package demo

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbsqlc"
	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// runHistory drives the rows of runs as a worker does.
type runHistory struct {
	t       *testing.T
	db      *dbtest.DB
	queries *dbsqlc.Queries
}

func newRunHistory(t *testing.T) runHistory {
	t.Helper()
	db := dbtest.New(t)
	return runHistory{t, db, db.Connected.Queries()}
}

func (h runHistory) start(kind, database string) int64 {
	h.t.Helper()
	run, err := h.queries.RunStart(h.t.Context(), dbsqlc.RunStartParams{Kind: kind, Database: database, Holder: "test"})
	require.NoError(h.t, err)
	return run.ID
}

func (h runHistory) progress(id int64, stats string) {
	h.t.Helper()
	require.NoError(h.t, h.queries.RunProgress(h.t.Context(), dbsqlc.RunProgressParams{ID: id, Stats: json.RawMessage(stats)}))
}

func (h runHistory) finish(id int64, changed bool, stats string) {
	h.t.Helper()
	require.NoError(h.t, h.queries.RunFinish(h.t.Context(),
		dbsqlc.RunFinishParams{ID: id, Outcome: "done", Changed: changed, Stats: json.RawMessage(stats)}))
}

// fold runs once without anything to do.
func (h runHistory) fold(database string) {
	h.t.Helper()
	id := h.start(testKind, database)
	// Runs of one minute share a row; this one must not begin in the next.
	h.db.Exec(`UPDATE sexton.runs SET started_at = coalesce((SELECT max(started_at) FROM sexton.runs WHERE id < $1), started_at) WHERE id = $1`, id)
	h.finish(id, false, "{}")
	_, err := h.queries.RunFold(h.t.Context(), id)
	require.NoError(h.t, err)
}

// plainSum adds up all rows on the server, but for the number of runs.
func (h runHistory) plainSum() Totals {
	h.t.Helper()
	var sum Totals
	const own = " FROM sexton.runs WHERE kind = '" + testKind + "'"
	require.NoError(h.t, h.db.Pool().QueryRow(h.t.Context(), `
		SELECT coalesce(sum((stats->>'processed')::bigint), 0), coalesce(sum((stats->>'rescheduled')::bigint), 0)`+own).
		Scan(&sum.Tombstones, &sum.Rescheduled))
	require.NoError(h.t, h.db.Pool().QueryRow(h.t.Context(), `
		SELECT coalesce(sum((error->>'count')::bigint), 0) FROM
			(SELECT jsonb_array_elements(stats->'errors') AS error`+own+`) AS errors`).Scan(&sum.Errors))
	tables := func(key string) (counts map[string]int64) {
		require.NoError(h.t, h.db.Pool().QueryRow(h.t.Context(), `
			SELECT coalesce(jsonb_object_agg(name, count), '{}') FROM (
				SELECT entry.key AS name, sum(entry.value::bigint) AS count
				FROM (SELECT stats->$1::text AS counts`+own+`) AS run, jsonb_each_text(run.counts) AS entry
				GROUP BY entry.key) AS counts`, key).Scan(&counts))
		return counts
	}
	sum.Deleted, sum.Updated = tables("delete_count_by_table"), tables("update_count_by_table")
	return sum
}

func TestTotalsEqualAPlainSum(t *testing.T) {
	t.Parallel()
	h := newRunHistory(t)
	w := &watch{site: testSite(t, h.db)}
	var first, second, third int64
	for _, step := range []struct {
		what    string
		do      func()
		settled *int64
	}{
		{what: "no run", do: func() {}},
		{what: "the first starts", do: func() { first = h.start(testKind, "main") }},
		{what: "the first grows", do: func() {
			h.progress(first, `{"processed": 3, "rescheduled": 0, "delete_count_by_table": {"notes": 5}, "update_count_by_table": {}, "errors": []}`)
		}},
		{what: "a younger one starts and grows", do: func() {
			second = h.start(testKind, "ci")
			h.progress(second, `{"processed": 10, "delete_count_by_table": {"notes": 1, "todos": 20}, "update_count_by_table": {"builds": 4}}`)
		}},
		{what: "another kind works", do: func() {
			h.finish(h.start("another", "main"), true, `{"processed": 1000, "delete_count_by_table": {"notes": 1000}}`)
		}},
		{what: "the younger one ends first", do: func() {
			h.finish(second, true, `{"processed": 11, "rescheduled": 2, "delete_count_by_table": {"notes": 2, "todos": 21}, "update_count_by_table": {"builds": 5},
				"errors": [{"count": 2, "error": "x"}, {"count": 5}]}`)
		}},
		{what: "the first grows on", do: func() {
			h.progress(first, `{"processed": 7, "delete_count_by_table": {"notes": 50, "events": 1}, "update_count_by_table": {"builds": 1}}`)
		}},
		{what: "the first ends", settled: &second, do: func() {
			h.finish(first, true, `{"processed": 8, "delete_count_by_table": {"notes": 51, "events": 2}}`)
		}},
		{what: "nothing happens", settled: &second, do: func() {}},
		{what: "an idle run has a row, two fold into it", settled: &third, do: func() {
			third = h.start(testKind, "main")
			h.finish(third, false, "{}")
			h.fold("main")
			h.fold("main")
		}},
		{what: "an idle run folds into a row that is settled", settled: &third, do: func() { h.fold("main") }},
		{what: "a run after all", do: func() {
			h.progress(h.start(testKind, "main"), `{"processed": 1, "delete_count_by_table": {"notes": 1}, "update_count_by_table": {"builds": 1}}`)
		}},
		{what: "a look at it again", settled: &third, do: func() {}},
	} {
		step.do()
		got, err := w.totals(t.Context())
		require.NoError(t, err, step.what)
		want := h.plainSum()
		require.Equal(t, want.Rows(), got.Rows(), step.what)
		want.Runs = got.Runs // The next test's.
		if got.Deleted == nil {
			want.Deleted, want.Updated = nil, nil
		}
		require.Equal(t, want, got, step.what)
		if step.settled != nil {
			require.Equal(t, *step.settled, w.lastSettled, "%s: what has ended is not read again", step.what)
		}
	}
	require.Zero(t, pgtest.Scalar[int64](t, h.db.Database, "SELECT count(*) - 5 FROM sexton.runs"), "the idle runs share a row")

	before, err := w.totals(t.Context())
	require.NoError(t, err)
	h.db.Exec("DELETE FROM sexton.runs WHERE id = ANY ($1)", []int64{first, second})
	after, err := w.totals(t.Context())
	require.NoError(t, err)
	before.Runs = after.Runs
	require.Equal(t, before, after, "history may be pruned")
}

// Idle runs share a row, whose column folded counts them.
func TestTotalsCountEveryRun(t *testing.T) {
	t.Parallel()
	h := newRunHistory(t)
	w := &watch{site: testSite(t, h.db)}
	runs := func(want int64) {
		t.Helper()
		got, err := w.totals(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got.Runs)
		require.Equal(t, want, pgtest.Scalar[int64](t, h.db.Database, "SELECT coalesce(sum(folded), 0) FROM sexton.runs"))
	}
	runs(0)
	h.finish(h.start(testKind, "main"), true, `{"processed": 1}`)
	runs(1)
	h.fold("main")
	h.fold("main")
	runs(3)
	h.fold("main")
	runs(4)
	id := h.start(testKind, "main")
	runs(5)
	h.finish(id, true, `{"processed": 1}`)
	runs(5)
}

func TestTotalsReportWhatTheyCannotRead(t *testing.T) {
	t.Parallel()
	h := newRunHistory(t)
	w := &watch{site: testSite(t, h.db)}
	id := h.start(testKind, "main")
	h.finish(id, true, `{"processed": "many"}`)
	_, err := w.totals(t.Context())
	require.ErrorContains(t, err, "decode statistics of run 1: ")
	require.Zero(t, w.lastSettled)
	h.db.Exec("DROP TABLE sexton.runs")
	_, err = w.totals(t.Context())
	require.ErrorContains(t, err, "read runs: ")
}

func TestRateIsTakenOverTheLastSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &watch{}
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		require.Zero(t, w.rate(1000), "one reading is no rate")
		<-tick.C
		require.InDelta(t, 200, w.rate(1100), 1e-9, "over what there is")
		for rows := int64(1200); rows <= 2000; rows += 100 {
			<-tick.C
			require.InDelta(t, 200, w.rate(rows), 1e-9)
		}
		for _, want := range []float64{150, 100, 50, 0, 0} {
			<-tick.C
			require.InDelta(t, want, w.rate(2000), 1e-9, "what is longer ago than two seconds counts no more")
		}
		require.LessOrEqual(t, len(w.recent), 6)
	})
}

// stepped is a view that goes on only when the test has taken the state.
type stepped struct {
	t      *testing.T
	states chan State
}

func newStepped(t *testing.T) *stepped {
	t.Helper()
	return &stepped{t, make(chan State)}
}

// view may be used by one goroutine, whose end takes.
func (s *stepped) view() View { return viewFunc(func(state State) { s.states <- state }) }

// next takes states until one is as it should be.
func (s *stepped) next(what string, accept func(State) bool) {
	s.t.Helper()
	for began := time.Now(); ; {
		if accept(receive(s.t, s.states, what)) {
			return
		}
		require.Less(s.t, time.Since(began), patience, "waited in vain for %s", what)
	}
}

// end takes all states until the goroutine that shows them has ended, and returns its error.
func (s *stepped) end(ended <-chan error) error {
	for {
		select {
		case <-s.states:
		case err := <-ended:
			return err
		}
	}
}

func TestWatchEndsOnlyWhenNothingIsLeftToDo(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	site := testSite(t, db)
	shown := newStepped(t)
	site.View = shown.view()
	w := &watch{site: site, app: &application{planned: 9}, times: newStopwatch(db.Pool(), dbtest.Names()), began: time.Now(), stall: time.Hour}
	ended := make(chan error, 1)
	go func() {
		_, err := w.until(t.Context(), true)
		ended <- err
	}()
	// A state that is shown after one that would do proves that the latter did not end it.
	goesOn := func(what string, accept func(State) bool) {
		t.Helper()
		shown.next(what, accept)
		shown.next("another state after "+what, accept)
	}
	goesOn("an application at work", func(s State) bool { return !s.ApplicationDone && s.Backlog == 0 })
	bury(db, "public.issues", 1)
	w.app.done.Store(true)
	goesOn("a backlog", func(s State) bool { return s.ApplicationDone && s.Backlog == 1 })
	w.times.committed("issues", []int64{1})
	payOff(db, "public.issues", 1)
	goesOn("a stopwatch that has not seen it", func(s State) bool { return s.ApplicationDone && s.Backlog == 0 })
	require.NoError(t, w.times.look(t.Context()))
	require.NoError(t, shown.end(ended))
}

func TestWatchGoesOnUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	site := testSite(t, db)
	shown := newStepped(t)
	site.View = shown.view()
	app := &application{}
	app.done.Store(true)
	w := &watch{site: site, app: app, times: newStopwatch(db.Pool(), dbtest.Names()), began: time.Now(), stall: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := w.until(ctx, false)
		ended <- err
	}()
	for range 3 {
		shown.next("a state with nothing left to do", func(s State) bool { return s.ApplicationDone && s.Backlog == 0 })
	}
	cancel()
	require.ErrorIs(t, shown.end(ended), context.Canceled)
}

func TestWatchGivesUpWhenNothingMoves(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	bury(db, "public.issues", 1, 2)
	w := &watch{site: testSite(t, db), app: &application{}, times: newStopwatch(db.Pool(), dbtest.Names()), began: time.Now(), stall: time.Nanosecond}
	state, err := w.until(t.Context(), true)
	require.EqualError(t, err, "nothing has moved for 1ns with 2 tombstones left: sleeps")
	require.EqualValues(t, 2, state.Backlog)
}

func TestWatchReadsTheState(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	w := &watch{site: testSite(t, db), app: &application{planned: 9}, times: newStopwatch(db.Pool(), dbtest.Names()), began: time.Now().Add(-time.Hour)}
	state, err := w.read(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, state.Elapsed, time.Hour)
	state.Elapsed = 0
	require.Equal(t, State{ParentsPlanned: 9, Activity: "sleeps"}, state)

	bury(db, "public.issues", 1, 2, 3)
	db.Exec("UPDATE loose_foreign_keys_deleted_records SET created_at = now() - interval '90 seconds' WHERE primary_key_value = 2")
	w.app.deleted.Store(4)
	w.times.elapsed = []time.Duration{time.Second}
	state, err = w.read(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, state.Backlog)
	require.InDelta(t, 90, state.Oldest.Seconds(), 30)
	require.EqualValues(t, 4, state.ParentsDeleted)
	require.InDelta(t, 1000, state.Latency.P99, 0)

	gone := errors.New("no activity")
	w.site.Activity = func(context.Context, int64) (string, error) { return "", gone }
	_, err = w.read(t.Context())
	require.ErrorIs(t, err, gone)
	db.Exec("DROP TABLE loose_foreign_keys_deleted_records")
	_, err = w.read(t.Context())
	require.ErrorContains(t, err, "read backlog: ")
}

func TestSummaryTellsUpdatesFromNullifications(t *testing.T) {
	t.Parallel()
	state := State{
		ParentsDeleted: 2,
		Cleaned:        Totals{Deleted: map[string]int64{"a": 3, "b": 4}, Updated: map[string]int64{"kids": 5, "app.kids": 6, "others": 7}},
	}
	site := Site{Kind: testKind, Rows: 17, Definitions: parsed(t, `
kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 1}]
app.kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 1}]
others: [{table: parents, column: parent_id, on_delete: async_nullify}]
`)}
	require.Equal(t, Summary{
		RowsLoaded: 17, ParentsDeleted: 2, ChildrenDeleted: 7, ChildrenNullified: 7, ChildrenUpdated: 11, Seconds: 1.5,
		Jobs: map[string]Totals{testKind: state.Cleaned},
	}, state.summary(site, 1500*time.Millisecond))
}
