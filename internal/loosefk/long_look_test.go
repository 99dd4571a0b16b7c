package loosefk_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
)

// A leaf that no statement of a run can read is read all the same, in one snapshot: its parents are confirmed, or come back with
// their late children, wherever an application moves these meanwhile.
func TestSecondLookAtALeafThatIsTooBigForAStatement(t *testing.T) {
	t.Parallel()

	for name, late := range map[string]bool{"no child": false, "a late child": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupAdaptive(t, parentsAndChildren+"DROP INDEX children_parent_id_idx;", deleteChildren, "parents")
			b.engine.Marks = &loosefk.Marks{}
			older := b.begun(t)
			b.Exec("DELETE FROM parents WHERE id <= 3")
			require.EqualValues(t, 3, b.run(t).Processed)
			require.Equal(t, []string{"1", "2", "3"}, b.swept())
			if late {
				older.exec("INSERT INTO children VALUES (1000, 2)")
			}
			older.exec("COMMIT")

			// The look is longer than the run, and no session waits for it.
			locked := b.session(t, b.URL)
			locked.exec("BEGIN; LOCK TABLE children")
			b.engine.Session.Limits.StatementTimeout = 200 * time.Millisecond
			stats := b.run(t)
			require.Zero(t, stats.Confirmed+stats.LateChildren)
			require.Empty(t, stats.Errors)
			require.Equal(t, []string{"1", "2", "3"}, b.swept())
			locked.exec("ROLLBACK")
			require.True(t, b.engine.Marks.AwaitLook())

			b.Exec("UPDATE sexton.swept SET not_before = NULL")
			confirmed := b.run(t)
			if late {
				require.Positive(t, confirmed.LateChildren)
				require.Zero(t, b.count(t, "children WHERE id = 1000"))
				require.True(t, b.engine.Marks.AwaitLook())
				b.Exec("UPDATE sexton.swept SET not_before = NULL")
				b.run(t)
			} else {
				require.EqualValues(t, 3, confirmed.Confirmed)
			}
			require.Empty(t, b.swept())
			require.Zero(t, b.Pending(t))
		})
	}
}

// A look that is under way inserts nothing, so that it holds no other one up.
func TestALongLookHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	look := b.begun(t)
	look.exec("SET LOCAL application_name = 'sexton second look'")
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.openedGate(t)
}

// What times out once has a look of its own from then on.
func TestSecondLookThatTimesOutGetsTheTimeItNeeds(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+`
		DROP INDEX children_parent_id_idx;
		INSERT INTO children SELECT 1000 + n, -n FROM generate_series(1, 400000) AS n;`, deleteChildren, "parents")
	b.engine.Marks = &loosefk.Marks{}
	older := b.begun(t)
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.run(t)
	require.Equal(t, []string{"1"}, b.swept())
	older.exec("ROLLBACK")
	b.engine.Session.Limits.StatementTimeout = 10 * time.Millisecond
	for tries := 0; len(b.swept()) > 0 && tries < 20; tries++ {
		b.Exec("UPDATE sexton.swept SET not_before = NULL")
		_, err := b.engine.Run(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
		b.engine.Marks.AwaitLook()
	}
	require.True(t, b.engine.Marks.AwaitLook())
	require.Empty(t, b.swept())
}
