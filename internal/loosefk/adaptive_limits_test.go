package loosefk_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
)

// slowRows makes a row take 0.1 ms, so that tens of thousands outlast a short run on any machine.
const slowRows = `
CREATE FUNCTION slow_rows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep((SELECT count(*) FROM gone) * 0.0001); RETURN NULL; END $$;
CREATE TRIGGER slow_rows AFTER DELETE ON children REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION slow_rows();`

// The end of its time is a boundary between runs here, and no parent is too big for it.
func TestAdaptiveEndOfTimeBlamesNobody(t *testing.T) {
	t.Parallel()

	b := setupAdaptive(t, parentsAndChildren+slowRows+heavy(30_000), deleteChildren, "parents")
	b.Exec(innocent)
	b.engine.Limits.Runtime = 400 * time.Millisecond
	b.Exec("DELETE FROM parents WHERE id = 1")
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
	stats := b.run(t)
	require.False(t, stats.Interrupted)
	require.EqualValues(t, 1, stats.Processed)
	require.Zero(t, b.count(t, "children WHERE parent_id = 1"))
	require.Zero(t, b.Pending(t))
}

// In the paces with limits time is one of them, and counts like the others.
func TestEndOfTimeBlamesTheHeavyParentAlone(t *testing.T) {
	t.Parallel()

	b := setup(t, parentsAndChildren+slowRows+heavy(30_000), deleteChildren, "parents")
	b.engine.Limits.Runtime = 1500 * time.Millisecond
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.Exec("DELETE FROM parents WHERE id > 1")
	stats := b.run(t)
	require.True(t, stats.OverLimit)
	require.False(t, stats.Interrupted)
	require.EqualValues(t, 9, stats.Processed)
	require.Equal(t, [][]string{{"1", "1", "f", "not finished within the limit of one run (1.5s)"}}, b.tombstones())
	require.Empty(t, stats.Errors, "a limit is no error")
}

// A run that ends in the middle of a chunk of many parents says nothing about any of them.
func TestEndOfTimeBlamesNobodyForASharedStatement(t *testing.T) {
	t.Parallel()

	b := setup(t, parentsAndChildren+heavy(1500)+`
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF (SELECT count(*) FROM gone) > 500 THEN PERFORM pg_sleep(1.5); END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER slow AFTER DELETE ON children REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION slow();`, deleteChildren, "parents")
	b.engine.Limits.Runtime = time.Second
	b.Exec("DELETE FROM parents")
	stats := b.run(t)
	require.True(t, stats.OverLimit)
	require.EqualValues(t, 1000, stats.DeleteCount, "one full statement for nine parents, which is longer than the run")
	for _, tombstone := range b.tombstones() {
		require.Equal(t, "0", tombstone[1], "attempts of parent %s", tombstone[0])
	}
}

func TestAdaptiveRowLimitsAreExactAndTheRestFollows(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		action string
		limits loosefk.Limits
	}{
		"deletes": {"async_delete", loosefk.Limits{Deletes: 35, Runtime: time.Minute}},
		"updates": {"async_nullify", loosefk.Limits{Updates: 35, Runtime: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupAdaptive(t, parentsAndChildren, "children: [{table: parents, column: parent_id, on_delete: "+test.action+"}]", "parents")
			b.engine.Limits = test.limits
			b.Exec("DELETE FROM parents")
			stats := b.run(t)
			require.EqualValues(t, 35, stats.DeleteCount+stats.UpdateCount)
			require.True(t, stats.OverLimit)
			require.False(t, stats.Interrupted)
			require.EqualValues(t, 65, b.count(t, "children WHERE parent_id IS NOT NULL"))
			b.engine.Limits = loosefk.Limits{Runtime: time.Minute}
			stats = b.run(t)
			require.False(t, stats.OverLimit)
			require.EqualValues(t, 65, stats.DeleteCount+stats.UpdateCount)
			require.Zero(t, b.Pending(t))
		})
	}
}

// A quarter of the time for work makes a run four times as long as one without pauses.
func TestAdaptiveDutyLeavesOthersTheirShare(t *testing.T) {
	t.Parallel()

	var took []time.Duration
	for _, duty := range []float64{1, 0.25} {
		b := setupAdaptive(t, parentsAndChildren+slowRows+heavy(5000), deleteChildren, "parents")
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
