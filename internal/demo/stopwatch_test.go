package demo

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/latency"
	"sexton/internal/pgtest"
)

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
		t.Helper()
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
