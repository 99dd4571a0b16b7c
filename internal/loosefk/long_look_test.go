package loosefk_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// A leaf that no statement of a run can read is read all the same, in one snapshot: its parents are confirmed, or come back with
// their late children, wherever an application moves these meanwhile.
func TestSecondLookAtALeafThatIsTooBigForAStatement(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]bool{"no child": false, "a late child": true}, func(t *testing.T, _ string, late bool) {
		b := setupAdaptive(t, parentsAndChildren+"DROP INDEX children_parent_id_idx;", deleteChildren, "parents")
		b.engine.Cursors = &loosefk.Cursors{}
		older := b.begun(t)
		b.Exec("DELETE FROM parents WHERE id <= 3")
		require.EqualValues(t, 3, b.run(t).Processed)
		require.Equal(t, []string{"1", "2", "3"}, b.unchecked())
		if late {
			older.exec("INSERT INTO children VALUES (1000, 2)")
		}
		older.exec("COMMIT")

		// The look is longer than the run, and no session waits for it.
		b.engine.Parents[0].ReadByRanges(8)
		b.engine.Cursors = loosefk.Learning(b.engine.Parents)
		locked := b.session(t, b.URL)
		locked.exec("BEGIN; LOCK TABLE children")
		stats := b.run(t)
		require.Zero(t, stats.Confirmed+stats.LateChildren)
		require.Empty(t, stats.Errors)
		require.Equal(t, []string{"1", "2", "3"}, b.unchecked())
		locked.exec("ROLLBACK")
		require.True(t, b.engine.Cursors.AwaitLook())

		b.Exec("UPDATE sexton.swept SET not_before = NULL")
		confirmed := b.run(t)
		if late {
			require.Positive(t, confirmed.LateChildren)
			require.Zero(t, b.count(t, "children WHERE id = 1000"))
			require.True(t, b.engine.Cursors.AwaitLook())
			b.Exec("UPDATE sexton.swept SET not_before = NULL")
			b.run(t)
		} else {
			require.EqualValues(t, 3, confirmed.Confirmed)
		}
		require.Empty(t, b.unchecked())
		require.Zero(t, b.Pending(t))
	})
}

// A look that is under way inserts nothing, so that it holds no other one up.
func TestALongLookHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.begun(t).exec("SET LOCAL application_name = 'sexton second look'")
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.rechecked(t)
}

// What times out once has a look of its own from then on.
func TestSecondLookThatTimesOutGetsTheTimeItNeeds(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+`
		DROP INDEX children_parent_id_idx;
		ALTER TABLE children DROP CONSTRAINT children_pkey, SET UNLOGGED;
		INSERT INTO children SELECT 1000 + n, -n FROM generate_series(1, 1000000) AS n;`, deleteChildren, "parents")
	b.engine.Cursors = &loosefk.Cursors{}
	older := b.begun(t)
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.run(t)
	require.Equal(t, []string{"1"}, b.unchecked())
	older.exec("ROLLBACK")
	b.engine.Session.Limits.StatementTimeout = 25 * time.Millisecond
	for tries := 0; len(b.unchecked()) > 0 && tries < 40; tries++ {
		b.Exec("UPDATE sexton.swept SET not_before = NULL")
		// On a busy machine a small statement of a run may need longer, too. That ends the run, and the next one goes on.
		if _, err := b.engine.Run(context.WithoutCancel(t.Context())); err != nil {
			require.ErrorContains(t, err, "SQLSTATE 57014")
		}
		b.engine.Cursors.AwaitLook()
	}
	require.True(t, b.engine.Cursors.AwaitLook())
	require.Empty(t, b.unchecked())
}

// twoLeaves is two parents of ten rows, each with a leaf that no statement of a run can read.
var twoLeaves = dbtest.Family(10, dbtest.Children{Each: 10, Bare: true}) + dbtest.Parents("others", 10) + dbtest.Children{Table: "theirs", Of: "others", Bare: true}.SQL()

const ofTwoLeaves = deleteChildren + "theirs: [{table: others, column: other_id, on_delete: async_delete}]\n"

// long is an engine on two parents, with rows that wait for their second look as the statement says.
func long(t *testing.T, swept string) bundle {
	b := setupAdaptive(t, twoLeaves, ofTwoLeaves, "parents", "others")
	for _, parent := range b.engine.Parents {
		parent.ReadByRanges(8)
	}
	b.engine.Cursors = loosefk.Learning(b.engine.Parents)
	t.Cleanup(b.engine.Cursors.Close)
	b.Exec("INSERT INTO sexton.swept (database, parent, integer_keys) " + swept)
	return b
}

func TestRowsOfTwoParentsThatAlternateShareTwoLooks(t *testing.T) {
	t.Parallel()
	b := long(t, `SELECT 'main', (ARRAY['public.parents', 'public.others'])[1 + n % 2], ARRAY[1000 + n] FROM generate_series(1, 10) AS n`)
	looks := map[any]bool{}
	for tries := 0; len(b.unchecked()) > 0 && tries < 40; tries++ {
		b.Exec("UPDATE sexton.swept SET not_before = NULL")
		b.run(t)
		require.True(t, b.engine.Cursors.AwaitLook())
		for _, look := range b.engine.Cursors.Looks() {
			looks[look] = true
		}
	}
	require.Empty(t, b.unchecked())
	require.Len(t, looks, 2)
}

// Rows that come while a look is under way take its answer from no other row.
func TestRowsThatComeMeanwhileKeepNoAnswerFromOthers(t *testing.T) {
	t.Parallel()
	b := long(t, `VALUES ('main', 'public.parents', ARRAY[1001])`)
	b.run(t)
	require.True(t, b.engine.Cursors.AwaitLook())
	b.Exec("INSERT INTO sexton.swept (database, parent, integer_keys) VALUES ('main', 'public.parents', ARRAY[1002]); UPDATE sexton.swept SET not_before = NULL")
	require.EqualValues(t, 1, b.run(t).Confirmed)
	require.Equal(t, []string{"1002"}, b.unchecked())
}

func TestALongLookEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	b := long(t, `VALUES ('main', 'public.parents', ARRAY[1001])`)
	const underWay = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'sexton second look'"
	locked := b.session(t, b.URL)
	locked.exec("BEGIN; LOCK TABLE children")
	b.run(t)
	pgtest.WaitFor(t, "the look", func(context.Context) (bool, error) { return pgtest.Scalar[int64](t, b.Database, underWay) == 1, nil })

	// Another process leaves it alone.
	other := *b.engine
	other.Cursors = loosefk.Learning(b.engine.Parents)
	b.Exec("UPDATE sexton.swept SET not_before = NULL")
	pgtest.Must(other.Run(t.Context()))(t)
	require.False(t, other.Cursors.AwaitLook())

	b.engine.Cursors.Close()
	pgtest.WaitFor(t, "its end", func(context.Context) (bool, error) { return pgtest.Scalar[int64](t, b.Database, underWay) == 0, nil })
	locked.exec("ROLLBACK")

	// A process that ends with its pass begins none, and looks within a statement's time.
	other.Cursors.Brief = true
	b.Exec("UPDATE sexton.swept SET not_before = NULL")
	require.EqualValues(t, 1, pgtest.Must(other.Run(t.Context()))(t).Confirmed)
	require.False(t, other.Cursors.AwaitLook())
}

// What failed once is left alone for minutes, with all rows of the parent, and for longer each time.
func TestALongLookThatFailsPutsItsParentOff(t *testing.T) {
	t.Parallel()
	b := long(t, `SELECT 'main', 'public.parents', ARRAY[1000 + n] FROM generate_series(1, 5) AS n`)
	b.begun(t).exec("LOCK TABLE children")
	b.engine.Session.Limits.LockTimeout = 20 * time.Millisecond
	b.Exec("UPDATE sexton.swept SET swept_at = now() - interval '90 minutes'")
	b.run(t)
	require.True(t, b.engine.Cursors.AwaitLook())
	b.engine.Cursors.FailWith("57014")
	first := b.engine.Cursors.Looks()
	b.Exec("UPDATE sexton.swept SET not_before = NULL")
	stats := b.run(t)
	require.Len(t, stats.Errors, 1)
	require.EqualValues(t, 1, stats.Errors[0].Count)
	const waits = "SELECT count(*) FROM sexton.swept WHERE not_before > now() + interval '4 minutes'"
	require.EqualValues(t, 5, pgtest.Scalar[int64](t, b.Database, waits))
	b.Exec("INSERT INTO sexton.swept (database, parent, integer_keys, swept_at) VALUES ('main', 'public.parents', ARRAY[1006], now() - interval '90 minutes')")
	require.Empty(t, b.run(t).Errors)
	require.EqualValues(t, 6, pgtest.Scalar[int64](t, b.Database, waits))
	require.Equal(t, first, b.engine.Cursors.Looks())
}

// Beside the heavy parent's children stand those of others, block by block. A block has fewer of them than the smallest
// statement takes, so that a slow machine walks as well.
var scattered = dbtest.Family(10, dbtest.Children{Columns: "note text"}) + `
ALTER TABLE children SET (autovacuum_enabled = off);
INSERT INTO children SELECT n, CASE WHEN n % 4 = 0 THEN 2 + n / 4 % 9 ELSE 1 END, repeat('x', 80) FROM generate_series(1, 120000) AS n;`

// Most of the heavy parent's children go by stretches of the table. An older transaction keeps second looks away, so
// whatever others do on the way has to be found before the tombstone goes.
func TestWalkLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	type example struct {
		meanwhile     []string
		deleted, stay int64
	}
	pgtest.Each(t, pgtest.Few(t, map[string]example{
		"undisturbed":             {[]string{"SELECT 1"}, 90_000, 30_000},
		"changed":                 {[]string{"UPDATE children SET note = repeat('x', 100) WHERE id > 119000"}, 90_000, 30_000},
		"moved to where it began": {[]string{"VACUUM (TRUNCATE false) children", "UPDATE children SET note = 'moved' WHERE id > 119000"}, 90_000, 30_000},
		"moved away":              {[]string{"UPDATE children SET parent_id = 2 WHERE id > 119000"}, 90_000 - 750, 30_750},
		"moved in":                {[]string{"UPDATE children SET parent_id = 1 WHERE parent_id = 3"}, 93_333, 26_667},
		"added":                   {[]string{"INSERT INTO children SELECT 200000 + n, 1 FROM generate_series(1, 500) AS n"}, 90_500, 30_000},
	}, "moved in", "moved to where it began"), func(t *testing.T, _ string, test example) {
		b := setupAdaptive(t, scattered+tooMany("DELETE", "children", 5000), deleteChildren, "parents")
		b.begun(t)
		b.Exec(innocent + "DELETE FROM parents WHERE id = 1")
		b.onProgress(func(s *loosefk.Stats) bool { return s.DeleteCount > 20_000 }, func() {
			for _, statement := range test.meanwhile {
				b.Exec(statement)
			}
		})
		stats := b.runSound(t)
		require.Zero(t, b.count(t, "children WHERE parent_id = 1"))
		require.InDelta(t, test.deleted, stats.DeleteCount, 1)
		require.InDelta(t, test.stay, b.count(t, "children"), 1)
		require.EqualValues(t, 1, stats.Processed)
		require.Zero(t, stats.LateChildren)
		require.Equal(t, []string{"1"}, b.unchecked())

		b.walked(t)
	})
}

// walked checks that statements on stretches of the table were sent.
func (b bundle) walked(t *testing.T) {
	var stretches int64
	require.NoError(t, b.engine.Session.Conn.QueryRow(t.Context(),
		"SELECT coalesce(sum(generic_plans), 0)::bigint FROM pg_prepared_statements WHERE statement LIKE '%child.ctid >= %'").Scan(&stretches))
	require.Positive(t, stretches, "statements on stretches")
}
