package loosefk_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// A child that another session locks after the run has read its window is skipped, and
// deleted after the lock is released.
func TestAdaptiveChildLockedAfterItsWindowWasRead(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+limitChildren+addChildren(12_000), deleteChildren, "parents")
	b.Exec(forbidAttempts + "DELETE FROM parents WHERE id = 1")
	tx, pid := b.lockRows(t, "false")
	locked := make(chan error, 1)
	b.onProgress(rowsDeleted, func() {
		_, err := tx.Exec(t.Context(), "SELECT FROM children WHERE id = 12000 FOR UPDATE")
		locked <- err
	})
	ended := b.runWhile(t.Context(), t)
	require.NoError(t, <-locked)
	pgtest.Await(t, b.Pool(), "all children but the locked one to be deleted", "SELECT count(*) = 1 FROM children WHERE parent_id = 1")
	pgtest.AwaitLockWait(t, b.Database, pid, 6*target)
	require.NoError(t, tx.Rollback(t.Context()))
	require.EqualValues(t, 12_010, b.requireClean(t, ended()).DeleteCount)
}

// changedIf returns plpgsql code that raises a serialization failure if the condition
// holds. Otherwise the code records the isolation level of the statement.
func changedIf(condition string) string {
	return "IF " + condition + ` THEN RAISE EXCEPTION 'changed' USING ERRCODE = '40001'; END IF;
		INSERT INTO public.forms VALUES (current_setting('transaction_isolation'));`
}

// A statement that fails because of a concurrent change is retried, the second time in
// READ COMMITTED.
func TestAdaptiveConcurrentlyChangedRowsAreRetried(t *testing.T) {
	t.Parallel()

	pgtest.Each(t, map[string]struct {
		fails string
		form  string
	}{
		"once":      {"nextval('public.tries') = 1", "repeatable read"},
		"twice":     {"nextval('public.tries') <= 2", "read committed"},
		"each time": {"current_setting('transaction_isolation') = 'repeatable read'", "read committed"},
	}, func(t *testing.T, _ string, test struct{ fails, form string }) {
		b := setupAdaptive(t, parentsAndChildren+"CREATE SEQUENCE tries; CREATE TABLE forms (form text);"+
			dbtest.OnRow("DELETE", "children", "true", changedIf(test.fails)), deleteChildren, "parents")
		b.Exec(forbidAttempts + "DELETE FROM parents WHERE id <= 3")
		require.EqualValues(t, 30, b.runToEnd(t).DeleteCount)
		require.Equal(t, test.form, pgtest.Scalar[string](t, b.Database,
			"SELECT string_agg(DISTINCT form, ', ') FROM forms"))
	})
}

// If even a statement on ten rows exceeds the adaptive pace's short timeout, the pace
// uses the configured statement timeout, and the table is cleaned up.
func TestAdaptiveSlowTableIsCleanedUp(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+slowRow, deleteChildren, "parents")
	b.Exec(forbidAttempts + "DELETE FROM parents WHERE id <= 4")
	stats := b.run(t)
	require.EqualValues(t, 4, stats.Processed)
	require.EqualValues(t, 40, stats.DeleteCount)
	require.Zero(t, b.Pending(t))
	for _, e := range stats.Errors {
		require.Equal(t, "57014", e.SQLState)
	}
}

// If a row of a parent that is drained in pieces cannot be deleted, only that parent gets
// an attempt.
func TestAdaptiveFailingRowOfALargeParent(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+limitChildren+addChildren(12_000)+poison+
		"UPDATE children SET note = 'poison' WHERE id = 12500;", deleteChildren, "parents")
	b.Exec("DELETE FROM parents")
	require.EqualValues(t, 9, b.run(t).Processed)
	require.Equal(t, [][]string{{"1", "1", "f", "children: SQLSTATE P0001: child 12500 is poisoned"}}, b.tombstones())
}

// If a trigger or rule prevents the deletion of rows or inserts them again, the run ends,
// and the tombstone is kept with an attempt and an error that names the cause.
func TestKeptRowsAreReported(t *testing.T) {
	t.Parallel()
	keep := func(condition string) string { return dbtest.OnRow("DELETE", "children", condition, "RETURN NULL;") }
	slow := `
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.001); RETURN old; END';
		CREATE TRIGGER a_slow BEFORE DELETE ON children FOR EACH ROW WHEN (old.id % 10 = 0) EXECUTE FUNCTION slow();`
	type example struct {
		pace, action, tables string
		kept                 int64
	}
	pgtest.Each(t, map[string]example{
		"one, without a target": {"normal", "async_delete", keep("old.id = 15"), 1},
		"one, reset": {
			"normal", "async_nullify",
			dbtest.OnRow("UPDATE", "children", "old.id = 15", "new.parent_id = old.parent_id;"), 1,
		},
		"one of few": {"adaptive", "async_delete", keep("old.id = 15"), 1},
		"one, by a rule": {
			"adaptive", "async_delete",
			"CREATE RULE keep AS ON DELETE TO children WHERE old.id = 15 DO INSTEAD NOTHING;", 1,
		},
		"one, inserted again": {
			"adaptive", "async_delete", dbtest.OnStatement("DELETE", "children",
				"INSERT INTO public.children SELECT gone.* FROM gone WHERE gone.id = 15;"), 1,
		},
		"all of few":     {"adaptive", "async_delete", keep("old.parent_id = 1"), 10},
		"one, in pieces": {"adaptive", "async_delete", limitChildren + addChildren(6000) + keep("old.id = 6500"), 1},
		"some, in pieces": {
			"adaptive", "async_delete",
			limitChildren + addChildren(6000) + keep("old.id % 3 = 0 AND old.parent_id = 1"), 2003,
		},
		"all of a large parent": {"adaptive", "async_delete", addChildren(3000) + slow + keep("old.parent_id = 1"), 3010},
	}, func(t *testing.T, _ string, test example) {
		b := setup(t, parentsAndChildren+test.tables+others, dbtest.Definitions(test.action, "children", "others"),
			"parents").withPace(test.pace)
		b.Exec("DELETE FROM parents")
		stats := b.run(t)
		require.False(t, stats.Interrupted, "the run ends before its time has expired")
		require.Less(t, stats.UpdateCount, int64(200))
		require.EqualValues(t, 9, stats.Processed)
		require.Equal(t, test.kept, b.count(t, "children WHERE parent_id IS NOT NULL"))
		require.Zero(t, b.count(t, "others WHERE parent_id IS NOT NULL"))
		left := b.tombstones()
		require.Len(t, left, 1)
		require.Equal(t, []string{"1", "1", "f"}, left[0][:3])
		require.Contains(t, left[0][3], "a trigger or rule of a child table keeps or restores them")
	})
}

// slowRows makes the deletion of each row take 0.1 ms, so that tens of thousands of rows
// take longer than a short run on any machine.
var slowRows = dbtest.OnStatement("DELETE", "children", "PERFORM pg_sleep((SELECT count(*) FROM gone) * 0.0001);")

// If the run ends while a parent's children are being deleted, the tombstone gets no
// attempt.
func TestAdaptiveEndOfRunIsNoAttempt(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+slowRows+addChildren(60_000), deleteChildren, "parents")
	b.Exec(forbidAttempts + "DELETE FROM parents WHERE id = 1")
	// The runtime is enough for the first batch on a busy machine, but two runs cannot
	// delete all rows, which takes 6 s.
	b.engine.Limits.Runtime = 1500 * time.Millisecond
	for run := range 2 {
		stats := b.run(t)
		require.False(t, stats.OverLimit, "run %d", run)
		require.True(t, stats.Interrupted, "run %d", run)
		require.Positive(t, stats.DeleteCount, "run %d", run)
		require.Zero(t, stats.Processed, "run %d", run)
		require.Equal(t, [][]string{{"1", "0", "f", ""}}, b.tombstones(), "run %d", run)
	}
	b.Exec("ALTER TABLE children DISABLE TRIGGER USER")
	b.engine.Limits.Runtime = time.Minute
	stats := b.runToEnd(t)
	require.False(t, stats.Interrupted)
	require.EqualValues(t, 1, stats.Processed)
	require.Zero(t, b.count(t, "children WHERE parent_id = 1"))
}

func TestRowLimitsAreExact(t *testing.T) {
	t.Parallel()
	parts := "DROP TABLE children;" + dbtest.Children{Each: 10, Columns: "note text", Partitions: 2}.SQL()
	type example struct {
		tables, action string
		limits         loosefk.Limits
	}
	eachAtPaces(t, map[string]example{
		"deletes":         {"", "async_delete", loosefk.Limits{Deletes: 35, Runtime: time.Minute}},
		"updates":         {"", "async_nullify", loosefk.Limits{Updates: 35, Runtime: time.Minute}},
		"over partitions": {parts, "async_delete", loosefk.Limits{Deletes: 35, Runtime: time.Minute}},
	}, func(t *testing.T, _, pace string, test example) {
		b := setup(t, parentsAndChildren+test.tables, dbtest.Definitions(test.action, "children"), "parents").withPace(pace)
		b.engine.Limits = test.limits
		b.Exec("DELETE FROM parents")
		stats := b.run(t)
		require.EqualValues(t, 35, stats.DeleteCount+stats.UpdateCount)
		require.True(t, stats.OverLimit)
		require.False(t, stats.Interrupted)
		require.EqualValues(t, 65, b.count(t, "children WHERE parent_id IS NOT NULL"))
		b.engine.Limits = loosefk.Limits{Deletes: 1000, Updates: 1000, Runtime: time.Minute}
		stats = b.runToEnd(t)
		require.False(t, stats.OverLimit)
		require.EqualValues(t, 65, stats.DeleteCount+stats.UpdateCount)
	})
}

// With a duty of 25%, a run takes about four times as long as without pauses.
func TestAdaptiveDutyPauses(t *testing.T) {
	t.Parallel()
	var took []time.Duration
	for _, duty := range []float64{1, 0.25} {
		b := setupAdaptive(t, parentsAndChildren+slowRows+addChildren(5000), deleteChildren, "parents")
		b.engine.Adaptive.Duty = duty
		b.Exec("DELETE FROM parents WHERE id = 1")
		began := time.Now()
		stats := b.run(t)
		took = append(took, time.Since(began))
		require.EqualValues(t, 1, stats.Processed)
	}
	ratio := float64(took[1]) / float64(took[0])
	require.Greater(t, ratio, 1.8, "%s", took)
	require.Less(t, ratio, 12.0, "%s", took)
}
