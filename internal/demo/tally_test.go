package demo

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbsqlc"
	"sexton/internal/dbtest"
	"sexton/internal/jobrun"
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

// total is the tally of the loose foreign keys.
func (h runHistory) total(earlier int64) (Tally, error) {
	tallies, err := testStage(h.db).tallies(h.t.Context(), earlier, []Script{(*ghostUsers)(nil).Script(), (*looseForeignKeys)(nil).Script()})
	if err != nil {
		return Tally{}, err
	}
	require.Equal(h.t, newTally((*ghostUsers)(nil).Script()), tallies[0], "which has no run")
	return tallies[1], nil
}

func TestTalliesSumUpRuns(t *testing.T) {
	t.Parallel()
	h := newRunHistory(t)
	want := newTally((*looseForeignKeys)(nil).Script())
	counted := func(what string) {
		t.Helper()
		require.Equal(t, want, pgtest.Must(h.total(0))(t), what)
	}
	numbers := func(runs, failed, processed, rescheduled int64, deleted, updated map[string]int64) {
		want = Tally{
			Runs: runs, Errors: failed, Numbers: map[string]int64{"processed": processed, "rescheduled": rescheduled},
			ByTable: map[string]map[string]int64{"delete_count_by_table": deleted, "update_count_by_table": updated},
		}
	}
	none := map[string]int64{}
	counted("no run")
	first := h.start(testKind, "main")
	numbers(1, 0, 0, 0, none, none)
	counted("the first starts")
	h.progress(first, `{"processed": 3, "rescheduled": 0, "delete_count_by_table": {"notes": 5}, "update_count_by_table": {}, "errors": []}`)
	second := h.start(testKind, "ci")
	h.progress(second, `{"processed": 10, "delete_count_by_table": {"notes": 1, "todos": 20}, "update_count_by_table": {"builds": 4}}`)
	numbers(2, 0, 13, 0, map[string]int64{"notes": 6, "todos": 20}, map[string]int64{"builds": 4})
	counted("both grow")
	h.finish(h.start("another", "main"), true, `{"processed": 1000, "delete_count_by_table": {"notes": 1000}}`)
	counted("another kind works")
	h.finish(second, true, `{"processed": 11, "rescheduled": 2, "delete_count_by_table": {"notes": 2, "todos": 21}, "update_count_by_table": {"builds": 5},
		"lag": {"processed": 9}, "errors": [{"count": 2, "error": "x"}, {"count": 5}]}`)
	h.finish(first, true, `{"processed": 8, "delete_count_by_table": {"notes": 51, "events": 2}, "errors": null, "rescheduled": null}`)
	numbers(2, 7, 19, 2, map[string]int64{"notes": 53, "todos": 21, "events": 2}, map[string]int64{"builds": 5})
	counted("both end")
	late := json.RawMessage(`{"processed": 12, "delete_count_by_table": {"notes": 302}}`)
	require.NoError(t, h.queries.RunCounted(t.Context(), late, json.RawMessage("{}"), second))
	numbers(2, 0, 20, 0, map[string]int64{"notes": 353, "events": 2}, none)
	counted("batches of a failed run are counted after its end")
	require.EqualValues(t, 355, want.Rows())
	for range 3 {
		h.fold("main")
		want.Runs++
		counted("idle runs share a row")
	}
	require.Zero(t, pgtest.Scalar[int64](t, h.db.Database, "SELECT count(*) - 4 FROM sexton.runs"))
	numbers(3, 0, 0, 0, none, none)
	require.Equal(t, want, pgtest.Must(h.total(second+1))(t), "what came before does not count")

	h.finish(h.start(testKind, "main"), true, `{"processed": "many"}`)
	_, err := h.total(0)
	require.ErrorContains(t, err, `read runs: ERROR: invalid input syntax for type bigint: ""many""`)
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
	require.Equal(t, jobrun.Percentiles{}, s.percentiles(), "of nothing")
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
	require.Equal(t, jobrun.PercentilesOf(s.elapsed), s.percentiles())

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

	db.Exec("DROP TABLE loose_foreign_keys_deleted_records")
	require.ErrorContains(t, s.run(t.Context()), "look at what waits: ")
	require.Equal(t, 1, s.pending())
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
