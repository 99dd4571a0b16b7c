package demo

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbsqlc"
	"sexton/internal/dbtest"
	"sexton/internal/latency"
	"sexton/internal/pgtest"
)

// runHistory drives the rows of runs as a worker does.
type runHistory struct {
	t       *testing.T
	db      *dbtest.DB
	queries *dbsqlc.Queries
}

func newRunHistory(t *testing.T) runHistory {
	db := dbtest.New(t)
	return runHistory{t, db, db.Connected.Queries()}
}

func (h runHistory) start(kind, database string) int64 {
	h.t.Helper()
	run := pgtest.Must(h.queries.RunStart(h.t.Context(), kind, database, "test"))(h.t)
	return run
}

func (h runHistory) progress(id int64, stats string) {
	h.t.Helper()
	require.NoError(h.t, h.queries.RunProgress(h.t.Context(), json.RawMessage(stats), id))
}

func (h runHistory) finish(id int64, changed bool, stats string) {
	h.t.Helper()
	_, err := h.queries.RunFinish(h.t.Context(), dbsqlc.RunFinishParams{ID: id, Outcome: "done", Changed: changed, Stats: json.RawMessage(stats)})
	require.NoError(h.t, err)
}

// fold runs once without anything to do.
func (h runHistory) fold(database string) {
	h.t.Helper()
	id := h.start(testKind, database)
	// Runs of one minute share a row; this one must not begin in the next.
	h.db.Exec(`UPDATE sexton.runs SET started_at = coalesce((SELECT max(started_at) FROM sexton.runs WHERE id < $1), started_at) WHERE id = $1`, id)
	h.finish(id, false, "{}")
}

// age has all runs that have ended do so long ago.
func (h runHistory) age() {
	h.t.Helper()
	h.db.Exec("UPDATE sexton.runs SET ended_at = ended_at - interval '1 hour'")
}

// plainSum adds up all rows on the server, but for the number of runs.
func (h runHistory) plainSum() Tally {
	h.t.Helper()
	const own = " FROM sexton.runs WHERE kind = '" + testKind + "'"
	number := func(sql string, args ...any) (n int64) {
		require.NoError(h.t, h.db.Pool().QueryRow(h.t.Context(), sql, args...).Scan(&n))
		return n
	}
	tables := func(key string) (counts map[string]int64) {
		require.NoError(h.t, h.db.Pool().QueryRow(h.t.Context(), `
			SELECT coalesce(jsonb_object_agg(name, count), '{}') FROM (
				SELECT entry.key AS name, sum(entry.value::bigint) AS count
				FROM (SELECT stats->$1::text AS counts`+own+`) AS run, json_each_text(run.counts) AS entry
				GROUP BY entry.key) AS counts`, key).Scan(&counts))
		return counts
	}
	sum := Tally{Numbers: map[string]int64{}, ByTable: map[string]map[string]int64{}}
	for _, name := range []string{"processed", "rescheduled"} {
		sum.Numbers[name] = number(`SELECT coalesce(sum((stats->>$1::text)::bigint), 0)`+own, name)
	}
	for _, name := range []string{"delete_count_by_table", "update_count_by_table"} {
		sum.ByTable[name] = tables(name)
	}
	sum.Errors = number(`
		SELECT coalesce(sum((error->>'count')::bigint), 0) FROM
			(SELECT json_array_elements(stats->'errors') AS error` + own + `) AS errors`)
	return sum
}

// newTestRuns are those of the loose foreign keys.
func newTestRuns(db *dbtest.DB) *runs {
	return &runs{pool: db.Pool(), names: dbtest.Names(), kinds: []string{testKind}, settled: newTally((*looseForeignKeys)(nil).Script())}
}

func TestTallyEqualAPlainSum(t *testing.T) {
	t.Parallel()
	h := newRunHistory(t)
	r := newTestRuns(h.db)
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
		{what: "the first ends", do: func() {
			h.finish(first, true, `{"processed": 8, "delete_count_by_table": {"notes": 51, "events": 2}}`)
		}},
		{what: "both have ended long ago", settled: &second, do: h.age},
		{what: "nothing happens", settled: &second, do: func() {}},
		{what: "an idle run has a row, two fold into it", settled: &third, do: func() {
			third = h.start(testKind, "main")
			h.finish(third, false, "{}")
			h.fold("main")
			h.fold("main")
			h.age()
		}},
		{what: "an idle run folds into a row that is settled", settled: &third, do: func() { h.fold("main") }},
		{what: "a run after all", do: func() {
			h.progress(h.start(testKind, "main"), `{"processed": 1, "delete_count_by_table": {"notes": 1}, "update_count_by_table": {"builds": 1}}`)
		}},
		{what: "a look at it again", settled: &third, do: func() {}},
	} {
		step.do()
		got, err := r.total(t.Context())
		require.NoError(t, err, step.what)
		want := h.plainSum()
		require.Equal(t, want.Rows(), got.Rows(), step.what)
		want.Runs = got.Runs // The next test's.
		require.Equal(t, want, got, step.what)
		if step.settled != nil {
			require.Equal(t, *step.settled, r.lastSettled, "%s: what has ended long ago is not read again", step.what)
		}
	}
	require.Zero(t, pgtest.Scalar[int64](t, h.db.Database, "SELECT count(*) - 5 FROM sexton.runs"), "the idle runs share a row")

	before := pgtest.Must(r.total(t.Context()))(t)
	h.db.Exec("DELETE FROM sexton.runs WHERE id = ANY ($1)", []int64{first, second})
	after := pgtest.Must(r.total(t.Context()))(t)
	before.Runs = after.Runs
	require.Equal(t, before, after, "history may be pruned")
}

// A run may be seen later than a younger one, and batches of a failed run are counted after its end.
func TestTallyCountWhatComesLate(t *testing.T) {
	t.Parallel()
	h := newRunHistory(t)
	r := newTestRuns(h.db)
	tx := pgtest.Must(h.db.Pool().Begin(t.Context()))(t)
	hidden := pgtest.Must(dbtest.Names().Queries(tx).RunStart(t.Context(), testKind, "main", "test"))(t)
	younger := h.start(testKind, "main")
	require.Less(t, hidden, younger)
	h.finish(younger, true, `{"processed": 1, "delete_count_by_table": {"notes": 1}}`)
	pgtest.Must(r.total(t.Context()))(t)
	require.NoError(t, tx.Commit(t.Context()))
	h.finish(hidden, true, `{"processed": 2, "delete_count_by_table": {"notes": 20}}`)
	got := pgtest.Must(r.total(t.Context()))(t)
	require.EqualValues(t, 21, got.Rows())

	require.NoError(t, h.queries.RunCounted(t.Context(), json.RawMessage(`{"processed": 1, "delete_count_by_table": {"notes": 300}}`), json.RawMessage("{}"), younger))
	got = pgtest.Must(r.total(t.Context()))(t)
	require.EqualValues(t, 320, got.Rows())
}

// Idle runs share a row, whose column folded counts them.
func TestTallyCountEveryRun(t *testing.T) {
	t.Parallel()
	h := newRunHistory(t)
	r := newTestRuns(h.db)
	count := func(want int64) {
		require.Equal(t, want, pgtest.Must(r.total(t.Context()))(t).Runs)
		require.Equal(t, want, pgtest.Scalar[int64](t, h.db.Database, "SELECT coalesce(sum(folded), 0) FROM sexton.runs"))
	}
	count(0)
	h.finish(h.start(testKind, "main"), true, `{"processed": 1}`)
	count(1)
	h.fold("main")
	h.fold("main")
	count(3)
	h.fold("main")
	count(4)
	id := h.start(testKind, "main")
	count(5)
	h.finish(id, true, `{"processed": 1}`)
	count(5)
}

func TestTallyReportWhatTheyCannotRead(t *testing.T) {
	t.Parallel()
	h := newRunHistory(t)
	r := newTestRuns(h.db)
	h.finish(h.start(testKind, "main"), true, `{"processed": "many"}`)
	_, err := r.total(t.Context())
	require.ErrorContains(t, err, "read statistics of run 1: decode processed: ")
	require.Zero(t, r.lastSettled)
	h.db.Exec("DROP TABLE sexton.runs")
	_, err = r.total(t.Context())
	require.ErrorContains(t, err, "read runs: ")
}

// bury writes tombstones for rows of a table.
func bury(db *dbtest.DB, table string, keys ...int64) {
	db.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value)
		SELECT $1, key FROM unnest($2::bigint[]) AS key`, table, keys)
}

// payOff removes tombstones of rows of a table.
func payOff(db *dbtest.DB, table string, keys ...int64) {
	db.Exec(`DELETE FROM loose_foreign_keys_deleted_records
		WHERE fully_qualified_table_name = $1 AND primary_key_value = ANY ($2::bigint[])`, table, keys)
}

func TestStopwatchMeasuresUntilTheTombstoneIsGone(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	s := newTestStopwatch(db)
	require.Equal(t, latency.Percentiles{}, s.percentiles(), "of nothing")
	require.Zero(t, s.pending())

	bury(db, "public.issues", 1, 2)
	before := time.Now()
	s.committed(deletedFrom("issues", 1, 2))
	after := time.Now()
	require.NoError(t, s.look(t.Context()))
	require.Equal(t, 2, s.pending(), "both tombstones are there")
	require.Empty(t, s.elapsed)

	payOff(db, "public.issues", 2)
	gone := time.Now()
	require.NoError(t, s.look(t.Context()))
	seen := time.Now()
	require.Equal(t, 1, s.pending(), "one tombstone is there")
	require.Len(t, s.elapsed, 1)
	require.GreaterOrEqual(t, s.elapsed[0], gone.Sub(after), "it was there so long")
	require.LessOrEqual(t, s.elapsed[0], seen.Sub(before))
	require.Equal(t, latency.Of(s.elapsed), s.percentiles())

	payOff(db, "public.issues", 1)
	require.NoError(t, s.look(t.Context()))
	require.Zero(t, s.pending())
	require.Len(t, s.elapsed, 2)
	require.NoError(t, s.look(t.Context()))
	require.Len(t, s.elapsed, 2, "each parent is measured once")
}

// A tombstone that is written while a look is under way may be one that the look does not see.
func TestStopwatchKeepsWhatIsCommittedDuringALook(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	s := newTestStopwatch(db)
	s.committed(deletedFrom("issues", 1))

	lock := pgtest.Begin(t, db.Pool(), "LOCK TABLE loose_foreign_keys_deleted_records IN ACCESS EXCLUSIVE MODE")
	_, ended := background(t, s.look)
	pgtest.Outlast(t, db.Database, lock.Conn().PgConn().PID(), 0)
	s.committed(deletedFrom("issues", 2))
	require.NoError(t, lock.Commit(t.Context()))
	require.NoError(t, receive(t, ended, "the look"))

	require.Len(t, s.elapsed, 1, "only the parent from before the look is clean")
	require.Contains(t, s.open, Item{"public.issues", 2})
	require.NoError(t, s.look(t.Context()))
	require.Len(t, s.elapsed, 2, "the next look takes it")
}

func TestStopwatchKnowsParentsByTableAndNumber(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	s := newTestStopwatch(db)
	bury(db, "public.issues", 7)
	bury(db, "other.notes", 8)
	db.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_text)
		VALUES ('public.labels', '7'), ('public.notes', '8')`)
	s.committed(deletedFrom("labels", 0, 7))
	s.committed(deletedFrom("notes", 0, 7, 8))
	s.committed(deletedFrom("issues", 7, 8))
	require.NoError(t, s.look(t.Context()))
	require.Len(t, s.elapsed, 6)
	require.Equal(t, 1, s.pending())
	require.Contains(t, s.open, Item{"public.issues", 7}, "only its tombstone is there")
}

func TestStopwatchRunsUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	s := newTestStopwatch(db)
	bury(db, "public.issues", 1, 2)
	s.committed(deletedFrom("issues", 1, 2))
	cancel, ended := background(t, s.run)
	pending := func(want int) {
		pgtest.WaitFor(t, "the stopwatch to see the tombstones go", func(context.Context) (bool, error) { return s.pending() == want, nil })
	}
	payOff(db, "public.issues", 1)
	pending(1)
	payOff(db, "public.issues", 2)
	pending(0)
	s.committed(deletedFrom("issues", 3))
	pending(0)
	cancel()
	require.ErrorIs(t, receive(t, ended, "the end of the stopwatch"), context.Canceled)
	require.Len(t, s.elapsed, 3)
}

func TestStopwatchReportsThatItCannotLook(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	s := newTestStopwatch(db)
	db.Exec("DROP TABLE loose_foreign_keys_deleted_records")
	s.committed(deletedFrom("issues", 1))
	require.ErrorContains(t, s.run(t.Context()), "look at what waits: ")
	require.Equal(t, 1, s.pending())
}
